// A step of generation takes no memory: everything it needs was planned and is there. Counts operator new of
// the whole program, on all threads.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "model/testing/harness.h"

// ThreadSanitizer has an operator new of its own that a program cannot replace: no test there.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ISTHMUS_OWN_OPERATOR_NEW
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define ISTHMUS_OWN_OPERATOR_NEW
#endif

#if !defined(ISTHMUS_OWN_OPERATOR_NEW)

namespace {
std::atomic<size_t> allocations{0};

void* counted(size_t bytes, size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const size_t whole = (bytes + alignment) / alignment * alignment;
  if (void* memory = std::aligned_alloc(alignment, whole)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace isthmus {
namespace {

class Allocation : public ::testing::TestWithParam<const char*> {};

TEST_P(Allocation, NoneInAStepOfGeneration) {
  testing::Harness h(GetParam(), Compute::kInt16, 1024, 2, KvType::kF16);
  KvSequence kv = h.model->make_sequence(h.blocks);
  h.run(kv, testing::some_tokens(40, 1), Compute::kInt16);
  std::vector<float> logits(h.model->config().vocab);
  const uint32_t output = 0;
  size_t before = 0;
  for (TokenId token = 1; token <= 20; ++token) {  // all in the block that the prompt began
    if (token == 2) before = allocations.load();   // the first may set up what lasts as long as a thread
    ASSERT_TRUE(kv.grow(1).ok());
    const ForwardSequence sequence{&kv, {&token, 1}, {}};
    ForwardStep step;
    step.sequences = {&sequence, 1};
    step.compute = Compute::kInt16;
    step.outputs = {&output, 1};
    step.logits = logits.data();
    ASSERT_TRUE(h.model->forward(step, *h.workspace, *h.pool).ok());
    kv.commit(1);
  }
  EXPECT_EQ(allocations.load() - before, 0U);
  EXPECT_GT(before, 0U) << "the count counts";
}

INSTANTIATE_TEST_SUITE_P(Tiny, Allocation,
                         ::testing::Values("llama.gguf", "qwen2.gguf", "qwen3.gguf", "gemma3.gguf",
                                           "phi3.gguf"));

}  // namespace
}  // namespace isthmus

#endif
