// Everything textual that a pull reads from outside; the first byte chooses the reader. What is accepted must
// obey its own rules.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "net/address.h"
#include "net/http_headers.h"
#include "net/url.h"
#include "os/paths_folder.h"
#include "store/catalogue.h"
#include "store/model_source.h"
#include "store/model_store.h"
#include "store/sha256.h"

namespace isthmus {
namespace {

void require(bool good) {
  if (!good) std::abort();
}

void check_source(const std::string& text) {
  const auto source = parse_source(text);
  if (!source.ok()) return;
  require(!source->parts.empty() && source->parts.size() <= kMaxSourceParts);
  for (const SourcePart& part : source->parts) {
    if (const auto* pypi = std::get_if<PypiPart>(&part)) {
      require(!pypi->package.empty() && pypi->package.front() != '-');
      require(("/" + pypi->member + "/").find("/../") == std::string::npos);
    }
  }
  const auto name = name_from_source(*source);
  if (name.ok()) require(is_model_name(*name));
}

void check_url(const std::string& text) {
  const auto url = parse_url(text);
  if (!url.ok()) return;
  static_cast<void>(classify_host(url->origin.host));
  const auto again = parse_url(url->text());
  require(again.ok() && again->origin == url->origin);
  static_cast<void>(resolve_url(*parse_url("https://h/a/b"), text));
}

void check_headers(const std::string& text) {
  HeaderMap headers;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size());
    add_header_line(std::string_view(text).substr(at, end - at), headers);
    at = end + 1;
  }
  static_cast<void>(strong_validator(headers));
  static_cast<void>(printable(text, 100));
  static_cast<void>(parse_retry_after(text, std::chrono::system_clock::time_point{}));
  const auto range = parse_content_range(text);
  if (range && range->first) require(range->last && *range->first <= *range->last);
}

}  // namespace
}  // namespace isthmus

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace isthmus;
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0:
      check_source(text);
      break;
    case 1:
      check_url(text);
      break;
    case 2:
      check_headers(text);
      break;
    case 3: {
      const auto manifest = parse_manifest(text);
      if (manifest.ok()) require(is_model_name(manifest->name) && is_sha256(manifest->sha256));
      break;
    }
    default:
      static_cast<void>(Catalogue::parse(text));
  }
  return 0;
}
