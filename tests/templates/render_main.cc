// template_render FILE: renders each line {"template": …, "context": {…}, "now": seconds} of a JSON-lines
// file and prints one line per case: {"ok": text} or {"error": message, "code": name}. The counterpart of
// oracle.py.
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "text/chat_template.h"

namespace {

using Json = nlohmann::ordered_json;

Json failure(const isthmus::Status& status) {
  return Json{{"error", status.message()}, {"code", std::string(isthmus::code_name(status.code()))}};
}

Json render_case(const Json& one) {
  auto parsed = isthmus::ChatTemplate::parse(one.at("template").get<std::string>());
  if (!parsed.ok()) return failure(parsed.status());
  const auto text = parsed->render(one.at("context"), one.value("now", int64_t{0}));
  if (!text.ok()) return failure(text.status());
  return Json{{"ok", *text}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: template_render FILE\n";
    return 2;
  }
  std::ifstream file(argv[1]);
  if (!file) {
    std::cerr << "template_render: cannot open " << argv[1] << "\n";
    return 3;
  }
  for (std::string line; std::getline(file, line);) {
    const Json one = Json::parse(line, nullptr, false);
    if (one.is_discarded() || !one.is_object() || !one.contains("template") || !one.contains("context")) {
      std::cerr << "template_render: a line is not a case\n";
      return 4;
    }
    std::cout << render_case(one).dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
  }
  return 0;
}
