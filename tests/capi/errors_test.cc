// Null arguments, structs of other ages, error handles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "capi_testing.h"

namespace isthmus_capi_test {
namespace {

using ::testing::HasSubstr;

class CapiErrors : public ::testing::Test {
 protected:
  void TearDown() override { isthmus_error_free(error_); }

  /// The call must have failed so, and say why.
  void expect(isthmus_code code, isthmus_code wanted, const char* text) {
    EXPECT_EQ(code, wanted);
    EXPECT_EQ(isthmus_error_code(error_), wanted);
    EXPECT_THAT(isthmus_error_message(error_), HasSubstr(text));
    isthmus_error_free(error_);
    error_ = nullptr;
  }

  isthmus_error* error_ = nullptr;
};

TEST_F(CapiErrors, VersionsAgree) {
  EXPECT_EQ(isthmus_version_number(), ISTHMUS_VERSION_NUMBER);
  const std::string text = std::to_string(ISTHMUS_VERSION_MAJOR) + "." +
                           std::to_string(ISTHMUS_VERSION_MINOR) + "." +
                           std::to_string(ISTHMUS_VERSION_PATCH);
  EXPECT_EQ(isthmus_version(), text);
}

TEST_F(CapiErrors, NamesOfCodes) {
  EXPECT_STREQ(isthmus_code_name(ISTHMUS_NOT_FOUND), "not_found");
  EXPECT_STREQ(isthmus_code_name(ISTHMUS_DEADLINE_EXCEEDED), "deadline_exceeded");
  EXPECT_STREQ(isthmus_code_name(static_cast<isthmus_code>(14)), "unknown");
  EXPECT_STREQ(isthmus_finish_reason_name(ISTHMUS_FINISH_STOP_STRING), "stop_string");
}

TEST_F(CapiErrors, NullHandlesAreFreedAndReadSafely) {
  isthmus_error_free(nullptr);
  isthmus_cancel_free(nullptr);
  isthmus_model_free(nullptr);
  isthmus_decoder_free(nullptr);
  isthmus_sampler_free(nullptr);
  isthmus_session_free(nullptr);
  isthmus_result_free(nullptr);
  isthmus_free(nullptr);
  isthmus_cancel_set(nullptr);
  isthmus_cancel_reset(nullptr);
  isthmus_limits_init(nullptr, sizeof(isthmus_limits));
  EXPECT_EQ(isthmus_cancel_is_set(nullptr), 0);
  EXPECT_EQ(isthmus_error_code(nullptr), ISTHMUS_OK);
  EXPECT_STREQ(isthmus_error_message(nullptr), "");
  size_t n = 7;
  EXPECT_STREQ(isthmus_result_text(nullptr, &n), "");
  EXPECT_EQ(n, 0U);
  EXPECT_EQ(isthmus_result_tokens(nullptr, nullptr), nullptr);
  EXPECT_EQ(isthmus_result_detail(nullptr, 0), nullptr);
  EXPECT_STREQ(isthmus_result_stop_string(nullptr), "");
}

TEST_F(CapiErrors, NullArgumentsAreNamed) {
  isthmus_model* model = nullptr;
  isthmus_session* session = nullptr;
  isthmus_token* tokens = nullptr;
  char* text = nullptr;
  size_t n = 0;
  expect(isthmus_cancel_create(nullptr, &error_), ISTHMUS_INVALID_ARGUMENT, "cancel is null");
  expect(isthmus_model_load(nullptr, nullptr, nullptr, &model, &error_), ISTHMUS_INVALID_ARGUMENT,
         "path is null");
  expect(isthmus_model_load("x", nullptr, nullptr, nullptr, &error_), ISTHMUS_INVALID_ARGUMENT,
         "model is null");
  expect(isthmus_session_create(nullptr, &session, &error_), ISTHMUS_INVALID_ARGUMENT, "model is null");
  expect(isthmus_tokenize(nullptr, "x", 1, 0, &tokens, &n, &error_), ISTHMUS_INVALID_ARGUMENT,
         "model is null");
  expect(isthmus_tokenize(nullptr, "x", 1, 0, nullptr, &n, &error_), ISTHMUS_INVALID_ARGUMENT,
         "tokens is null");
  expect(isthmus_detokenize(nullptr, nullptr, 0, 0, &text, &n, &error_), ISTHMUS_INVALID_ARGUMENT,
         "model is null");
  expect(isthmus_render_chat(nullptr, "[]", 2, nullptr, &text, &n, &error_), ISTHMUS_INVALID_ARGUMENT,
         "model is null");
  expect(isthmus_session_append(nullptr, nullptr, 0, ISTHMUS_PROMPT, nullptr, &error_),
         ISTHMUS_INVALID_ARGUMENT, "session is null");
  expect(isthmus_session_truncate(nullptr, 0, &error_), ISTHMUS_INVALID_ARGUMENT, "session is null");
  expect(isthmus_session_fork(nullptr, &session, &error_), ISTHMUS_INVALID_ARGUMENT, "session is null");
  expect(isthmus_session_accept(nullptr, nullptr, 0, &error_), ISTHMUS_INVALID_ARGUMENT, "session is null");
  expect(isthmus_result_figures(nullptr, nullptr, &error_), ISTHMUS_INVALID_ARGUMENT, "result is null");
  // The error itself may be null, too.
  EXPECT_EQ(isthmus_session_truncate(nullptr, 0, nullptr), ISTHMUS_INVALID_ARGUMENT);
}

TEST_F(CapiErrors, SuccessClearsTheError) {
  isthmus_error* stale = reinterpret_cast<isthmus_error*>(&error_);
  isthmus_cancel* cancel = nullptr;
  ASSERT_EQ(isthmus_cancel_create(&cancel, &stale), ISTHMUS_OK);
  EXPECT_EQ(stale, nullptr);
  isthmus_cancel_set(cancel);
  EXPECT_EQ(isthmus_cancel_is_set(cancel), 1);
  isthmus_cancel_reset(cancel);
  EXPECT_EQ(isthmus_cancel_is_set(cancel), 0);
  isthmus_cancel_free(cancel);
}

TEST_F(CapiErrors, StructsWithoutSizeAreRefused) {
  isthmus_model_options options{};
  isthmus_model* model = nullptr;
  expect(isthmus_model_load("x", &options, nullptr, &model, &error_), ISTHMUS_INVALID_ARGUMENT,
         "options.struct_size is not set");
  options.struct_size = SIZE_MAX;
  expect(isthmus_model_load("x", &options, nullptr, &model, &error_), ISTHMUS_INVALID_ARGUMENT,
         "options.struct_size is not set");
}

TEST_F(CapiErrors, OlderStructsKeepTheDefaultsOfNewFields) {
  // As a program saw it whose header ended before the field `threads`.
  isthmus_model_options options{};
  isthmus_model_options_init(&options, offsetof(isthmus_model_options, threads));
  EXPECT_EQ(options.sequences, 1U);
  EXPECT_EQ(options.step_tokens, 0U) << "_init wrote past the size it was given";
  options.context = 64;
  isthmus_memory memory{};
  memory.struct_size = sizeof memory;
  EXPECT_EQ(isthmus_model_plan(tiny("llama").c_str(), &options, &memory, &error_), ISTHMUS_OK)
      << isthmus_error_message(error_);
  EXPECT_GT(memory.total, memory.weights);
  EXPECT_EQ(memory.total, memory.weights + memory.kv + memory.work + memory.text);
}

TEST_F(CapiErrors, NewerStructsMayNotSetUnknownFields) {
  struct Newer {
    isthmus_limits known;
    uint64_t later;
  } newer{};
  isthmus_limits_init(&newer.known, sizeof newer);
  EXPECT_EQ(newer.known.struct_size, sizeof newer);
  isthmus_model* model = nullptr;
  const std::string path = tiny("llama");
  ASSERT_EQ(isthmus_model_load(path.c_str(), nullptr, &newer.known, &model, &error_), ISTHMUS_OK)
      << isthmus_error_message(error_);
  isthmus_model_free(model);
  newer.later = 1;
  expect(isthmus_model_load(path.c_str(), nullptr, &newer.known, &model, &error_), ISTHMUS_UNSUPPORTED,
         "limits has a field");
  EXPECT_EQ(model, nullptr);
}

TEST_F(CapiErrors, DeadlinesBeyondTheClockAreRefused) {
  isthmus_limits limits;
  isthmus_limits_init(&limits, sizeof limits);
  limits.deadline_ms = UINT64_MAX;
  isthmus_model* model = nullptr;
  expect(isthmus_model_load(tiny("llama").c_str(), nullptr, &limits, &model, &error_),
         ISTHMUS_INVALID_ARGUMENT, "deadline_ms");
}

}  // namespace
}  // namespace isthmus_capi_test
