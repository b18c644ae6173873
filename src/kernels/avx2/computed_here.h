// Keeps g++ from turning a chain of integer additions into a tree: it would store every product of an
// unrolled loop on the stack and add them up at the end (g++ 12: half of the speed).
#pragma once

#include <immintrin.h>

#include "kernels/generic/inline.h"

namespace isthmus {
namespace {

/// `value`, computed at this point and used as it is.
ISTHMUS_INLINE __m256i computed_here(__m256i value) {
  __asm__("" : "+x"(value));
  return value;
}

}  // namespace
}  // namespace isthmus
