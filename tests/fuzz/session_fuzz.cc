// Session files: any text is refused with a reason, or comes back the same when it is written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "store/session_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parsed = isthmus::parse_session({reinterpret_cast<const char*>(data), size});
  if (!parsed.ok()) return 0;
  const auto again = isthmus::parse_session(isthmus::write_session(*parsed));
  if (!again.ok() || !(*again == *parsed)) std::abort();
  return 0;
}
