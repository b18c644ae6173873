// What the tests of the C API share: the tiny models, and errors as values.
#pragma once

#include <isthmus/isthmus.hpp>
#include <string>

namespace isthmus_capi_test {

inline std::string tiny(const std::string& name) {
  return std::string(ISTHMUS_TINY_MODELS "/") + name + ".gguf";
}

/// The code of the Error that `call` throws; ISTHMUS_OK when it throws none.
template <class Call>
isthmus_code code_of(Call&& call) {
  try {
    call();
  } catch (const isthmus::Error& error) {
    return error.code();
  }
  return ISTHMUS_OK;
}

/// The message of the Error that `call` throws, or "".
template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const isthmus::Error& error) {
    return error.what();
  }
  return "";
}

inline isthmus::ModelOptions small_options() {
  isthmus::ModelOptions options;
  options.context = 512;
  options.threads = 2;
  options.sequences = 3;
  options.tree_tokens = 8;
  options.chat_template = "chatml";
  return options;
}

}  // namespace isthmus_capi_test
