#include "text/unicode_class.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace isthmus::tok {
namespace {

constexpr uint32_t kRanges[] = {
#include "text/unicode_ranges.inc"
};

}  // namespace

const UnicodeTable& UnicodeTable::get() {
  static const UnicodeTable table;
  return table;
}

UnicodeTable::UnicodeTable() {
  std::array<int, 5> uniform_page;  // where the page that holds only one class stands, or -1
  uniform_page.fill(-1);
  size_t range = 0;
  const auto end_of = [](size_t r) { return r + 1 < std::size(kRanges) ? kRanges[r + 1] >> 3 : 0x110000u; };
  for (uint32_t page = 0; page < page_of_.size(); ++page) {
    const uint32_t first = page << 8;
    while (end_of(range) <= first) ++range;
    const size_t value = kRanges[range] & 7;
    const bool uniform = end_of(range) >= first + 256;
    if (uniform && uniform_page[value] >= 0) {
      page_of_[page] = static_cast<uint16_t>(uniform_page[value]);
      continue;
    }
    page_of_[page] = static_cast<uint16_t>(pages_.size() >> 8);
    if (uniform) uniform_page[value] = page_of_[page];
    for (uint32_t c = first; c < first + 256; ++c) {
      while (end_of(range) <= c) ++range;
      pages_.push_back(static_cast<CharClass>(kRanges[range] & 7));
    }
  }
}

}  // namespace isthmus::tok
