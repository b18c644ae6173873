// Tokens, text, and chat templates.
#include <nlohmann/json.hpp>

#include "capi/border.h"
#include "capi/handles.h"
#include "engine/chat.h"

namespace {

using namespace isthmus;        // NOLINT: this file is a thin border over that namespace
using namespace isthmus::capi;  // NOLINT

constexpr int kDeepestJson = 64;  // as deep as a template may go

bool shows_special(uint32_t flags) { return (flags & ISTHMUS_SHOW_SPECIAL) != 0; }

/// A JSON text of a caller. Depth is limited, because what reads the document later recurses into it.
Result<nlohmann::ordered_json> parse_json(std::string_view text, const char* name) {
  bool deep = false;
  const auto watch = [&deep](int depth, nlohmann::ordered_json::parse_event_t, nlohmann::ordered_json&) {
    deep = deep || depth > kDeepestJson;
    return !deep;
  };
  try {
    auto out = nlohmann::ordered_json::parse(text.begin(), text.end(), watch);
    if (deep) {
      return invalid_argument(std::string(name) + ": nested deeper than " + std::to_string(kDeepestJson));
    }
    return out;
  } catch (const nlohmann::ordered_json::exception& e) {
    return invalid_argument(std::string(name) + ": not a JSON text: " + e.what());
  }
}

isthmus_chat_options default_chat_options() {
  isthmus_chat_options out{};
  out.struct_size = sizeof(out);
  out.generation_prompt = 1;
  return out;
}

Result<ChatRequest> chat_request(const char* messages, size_t length, const isthmus_chat_options* options) {
  isthmus_chat_options known = default_chat_options();
  ISTHMUS_RETURN_IF_ERROR(read_struct(options, &known, "options"));
  ISTHMUS_RETURN_IF_ERROR(need(messages, "messages"));
  ISTHMUS_ASSIGN_OR_RETURN(const std::string_view text, text_of(messages, length, "messages"));
  ChatRequest out;
  ISTHMUS_ASSIGN_OR_RETURN(out.messages, parse_json(text, "messages"));
  if (known.tools != nullptr) {
    ISTHMUS_ASSIGN_OR_RETURN(const auto tools, text_of(known.tools, known.tools_length, "options.tools"));
    ISTHMUS_ASSIGN_OR_RETURN(out.tools, parse_json(tools, "options.tools"));
    if (!out.tools.is_array()) return invalid_argument("options.tools: an array is needed");
  }
  if (known.variables != nullptr) {
    ISTHMUS_ASSIGN_OR_RETURN(const auto variables,
                             text_of(known.variables, known.variables_length, "options.variables"));
    ISTHMUS_ASSIGN_OR_RETURN(out.variables, parse_json(variables, "options.variables"));
    if (!out.variables.is_object()) return invalid_argument("options.variables: an object is needed");
  }
  out.add_generation_prompt = known.generation_prompt != 0;
  out.now = known.now;
  return out;
}

StreamDecoder make_decoder(const isthmus_decoder& handle) {
  return StreamDecoder(handle.model->tokenizer(), shows_special(handle.flags),
                       (handle.flags & ISTHMUS_AT_START) != 0);
}

/// Gives out the decoder's text.
Status lend_text(isthmus_decoder& decoder, std::string text, const char** out, size_t* length) {
  decoder.text = std::move(text);
  *out = decoder.text.c_str();
  if (length != nullptr) *length = decoder.text.size();
  return ok_status();
}

}  // namespace

isthmus_code isthmus_tokenize(const isthmus_model* model, const char* text, size_t length, uint32_t flags,
                              isthmus_token** tokens, size_t* count, isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need_out(tokens, "tokens"));
    ISTHMUS_RETURN_IF_ERROR(need_out(count, "count"));
    ISTHMUS_RETURN_IF_ERROR(need(model, "model"));
    ISTHMUS_RETURN_IF_ERROR(check_flags(flags, ISTHMUS_PARSE_SPECIAL | ISTHMUS_ADD_BOS_EOS));
    ISTHMUS_ASSIGN_OR_RETURN(const std::string_view bytes, text_of(text, length, "text"));
    const Specials specials = (flags & ISTHMUS_PARSE_SPECIAL) != 0 ? Specials::kParse : Specials::kAsText;
    give_tokens(model->model->tokenizer().encode(bytes, specials, (flags & ISTHMUS_ADD_BOS_EOS) != 0), tokens,
                count);
    return ok_status();
  });
}

isthmus_code isthmus_detokenize(const isthmus_model* model, const isthmus_token* tokens, size_t count,
                                uint32_t flags, char** text, size_t* length, isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need_out(text, "text"));
    if (length != nullptr) *length = 0;
    ISTHMUS_RETURN_IF_ERROR(need(model, "model"));
    ISTHMUS_RETURN_IF_ERROR(check_flags(flags, ISTHMUS_SHOW_SPECIAL));
    const Tokenizer& tokenizer = model->model->tokenizer();
    ISTHMUS_ASSIGN_OR_RETURN(const auto ids, array_of(tokens, count, "tokens"));
    ISTHMUS_RETURN_IF_ERROR(check_tokens(ids, tokenizer.vocab_size(), "tokens"));
    give_text(tokenizer.decode(ids, shows_special(flags)), text, length);
    return ok_status();
  });
}

isthmus_code isthmus_token_piece(const isthmus_model* model, isthmus_token token, uint32_t flags,
                                 const char** piece, size_t* length, isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need_out(piece, "piece"));
    ISTHMUS_RETURN_IF_ERROR(need_out(length, "length"));
    ISTHMUS_RETURN_IF_ERROR(need(model, "model"));
    ISTHMUS_RETURN_IF_ERROR(check_flags(flags, ISTHMUS_SHOW_SPECIAL));
    const Tokenizer& tokenizer = model->model->tokenizer();
    ISTHMUS_RETURN_IF_ERROR(check_tokens({&token, 1}, tokenizer.vocab_size(), "token"));
    const std::string_view bytes = tokenizer.piece(token, shows_special(flags));
    *piece = bytes.data() != nullptr ? bytes.data() : "";
    *length = bytes.size();
    return ok_status();
  });
}

isthmus_code isthmus_token_find(const isthmus_model* model, const char* spelling, size_t length,
                                isthmus_token* token, isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need_out(token, "token"));
    ISTHMUS_RETURN_IF_ERROR(need(model, "model"));
    ISTHMUS_ASSIGN_OR_RETURN(const std::string_view bytes, text_of(spelling, length, "spelling"));
    const auto found = model->model->tokenizer().find(bytes);
    if (!found) return not_found("the vocabulary has no token '" + std::string(bytes) + "'");
    *token = *found;
    return ok_status();
  });
}

isthmus_code isthmus_decoder_create(const isthmus_model* model, uint32_t flags, isthmus_decoder** decoder,
                                    isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need_out(decoder, "decoder"));
    ISTHMUS_RETURN_IF_ERROR(need(model, "model"));
    ISTHMUS_RETURN_IF_ERROR(check_flags(flags, ISTHMUS_SHOW_SPECIAL | ISTHMUS_AT_START));
    auto out = std::make_unique<isthmus_decoder>();
    out->model = model->model;
    out->flags = flags;
    out->decoder.emplace(make_decoder(*out));
    *decoder = out.release();
    return ok_status();
  });
}

isthmus_code isthmus_decoder_push(isthmus_decoder* decoder, isthmus_token token, const char** text,
                                  size_t* length, isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need_out(text, "text"));
    if (length != nullptr) *length = 0;
    ISTHMUS_RETURN_IF_ERROR(need(decoder, "decoder"));
    ISTHMUS_RETURN_IF_ERROR(check_tokens({&token, 1}, decoder->model->tokenizer().vocab_size(), "token"));
    return lend_text(*decoder, decoder->decoder->push(token), text, length);
  });
}

isthmus_code isthmus_decoder_finish(isthmus_decoder* decoder, const char** text, size_t* length,
                                    isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need_out(text, "text"));
    if (length != nullptr) *length = 0;
    ISTHMUS_RETURN_IF_ERROR(need(decoder, "decoder"));
    std::string rest = decoder->decoder->finish();
    decoder->decoder.emplace(make_decoder(*decoder));
    return lend_text(*decoder, std::move(rest), text, length);
  });
}

void isthmus_decoder_free(isthmus_decoder* decoder) { delete decoder; }

void isthmus_chat_options_init(isthmus_chat_options* options, size_t struct_size) {
  init_struct(default_chat_options(), options, struct_size);
}

isthmus_code isthmus_render_chat(const isthmus_model* model, const char* messages, size_t length,
                                 const isthmus_chat_options* options, char** text, size_t* text_length,
                                 isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need_out(text, "text"));
    if (text_length != nullptr) *text_length = 0;
    ISTHMUS_RETURN_IF_ERROR(need(model, "model"));
    ISTHMUS_ASSIGN_OR_RETURN(const ChatRequest request, chat_request(messages, length, options));
    ISTHMUS_ASSIGN_OR_RETURN(const RenderedChat rendered, render_chat(*model->model, request));
    give_text(rendered.text, text, text_length);
    return ok_status();
  });
}

isthmus_code isthmus_encode_chat(const isthmus_model* model, const char* messages, size_t length,
                                 const isthmus_chat_options* options, isthmus_token** tokens, size_t* count,
                                 isthmus_error** error) {
  return border(error, [&]() -> Status {
    ISTHMUS_RETURN_IF_ERROR(need_out(tokens, "tokens"));
    ISTHMUS_RETURN_IF_ERROR(need_out(count, "count"));
    ISTHMUS_RETURN_IF_ERROR(need(model, "model"));
    ISTHMUS_ASSIGN_OR_RETURN(const ChatRequest request, chat_request(messages, length, options));
    ISTHMUS_ASSIGN_OR_RETURN(const auto ids, encode_chat(*model->model, request));
    give_tokens(ids, tokens, count);
    return ok_status();
  });
}
