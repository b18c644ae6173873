// isthmus tokenize: the token ids of a text, or the text of token ids.
#include <fmt/core.h>

#include <charconv>
#include <memory>

#include "apps/isthmus/command.h"
#include "apps/isthmus/input.h"
#include "apps/isthmus/models.h"
#include "apps/isthmus/output.h"
#include "format/gguf.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace isthmus::cli {
namespace {

struct TokenizeFlags {
  std::string model;
  StoreFlags store;
  std::string text;
  std::string file;
  bool text_given = false;
  bool special = false;
  bool no_bos = false;
  bool ids = false;
  bool count = false;
  bool decode = false;
};

/// "1 22 333" or "[1, 22, 333]" as ids of a vocabulary of `vocab` tokens.
Result<std::vector<TokenId>> parse_ids(const std::string& text, size_t vocab) {
  std::vector<TokenId> ids;
  size_t at = 0;
  while ((at = text.find_first_not_of(" \t\r\n,[]", at)) != std::string::npos) {
    const size_t end = std::min(text.find_first_of(" \t\r\n,[]", at), text.size());
    TokenId id = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, id);
    const std::string word = text.substr(at, end - at);
    if (error != std::errc() || stop != text.data() + end) {
      return invalid_argument(fmt::format("'{}' is not a token id", word));
    }
    if (id < 0 || static_cast<size_t>(id) >= vocab) {
      return invalid_argument(fmt::format("token id {} is outside the vocabulary of {} tokens", word, vocab));
    }
    ids.push_back(id);
    at = end;
  }
  return ids;
}

/// A piece as a quoted string in which every byte can be seen; a piece that is only part of a character as
/// its bytes.
std::string visible(std::string_view piece) {
  std::string out = "\"";
  for (size_t at = 0; at < piece.size();) {
    const tok::Utf8Char c = tok::utf8_at(piece, at);
    if (!c.valid) {
      out = "bytes";
      for (const char byte : piece) out += fmt::format(" {:02x}", static_cast<unsigned char>(byte));
      return out;
    }
    const std::string_view text = piece.substr(at, c.length);
    if (text == "\n") {
      out += "\\n";
    } else if (text == "\t") {
      out += "\\t";
    } else {
      if (text == "\"" || text == "\\") out += '\\';
      out += text;
    }
    at += c.length;
  }
  return printable(out + "\"");
}

void print_tokens(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Table table({"id", "piece"});
  table.align_right({0});
  for (const TokenId id : ids) table.add({std::to_string(id), visible(tokenizer.piece(id, true))});
  table.print();
}

void print_tokens_json(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  nlohmann::ordered_json pieces = nlohmann::ordered_json::array();
  for (const TokenId id : ids) pieces.push_back(std::string(tokenizer.piece(id, true)));
  print_json({{"tokenizer", tokenizer.name()}, {"count", ids.size()}, {"ids", ids}, {"pieces", pieces}});
}

Status tokenize(const Context& context, const TokenizeFlags& options) {
  if (options.text_given && !options.file.empty()) {
    return invalid_argument("give TEXT or --file, not both");
  }
  if (options.decode && (options.ids || options.count || options.no_bos)) {
    return invalid_argument("--decode prints text; --ids, --count and --no-bos are about making tokens");
  }
  if (options.ids && options.count) return invalid_argument("give --ids or --count, not both");
  ISTHMUS_ASSIGN_OR_RETURN(const ResolvedModel model, find_model(options.model, options.store));
  ISTHMUS_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(model.path));
  ISTHMUS_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, Tokenizer::from_gguf(file));
  std::string text = options.text;
  if (!options.text_given) {
    ISTHMUS_ASSIGN_OR_RETURN(text,
                             options.file.empty() ? read_typed_input("text") : read_input(options.file));
  }

  if (options.decode) {
    ISTHMUS_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, parse_ids(text, tokenizer->vocab_size()));
    const std::string decoded = tokenizer->decode(ids, options.special);
    if (context.json) {
      print_json({{"tokenizer", tokenizer->name()}, {"text", decoded}});
    } else {
      fmt::print("{}\n", decoded);
    }
    return ok_status();
  }

  const Specials specials = options.special ? Specials::kParse : Specials::kAsText;
  const std::vector<TokenId> ids = tokenizer->encode(text, specials, !options.no_bos);
  if (context.json) {
    print_tokens_json(*tokenizer, ids);
  } else if (options.count) {
    fmt::print("{}\n", ids.size());
  } else if (options.ids) {
    for (size_t i = 0; i < ids.size(); ++i) fmt::print("{}{}", i == 0 ? "" : " ", ids[i]);
    fmt::print("\n");
  } else {
    print_tokens(*tokenizer, ids);
  }
  return ok_status();
}

}  // namespace

Command tokenize_command() {
  return {
      .name = "tokenize",
      .group = Group::kMeasure,
      .summary = "Show the tokens of a text, or the text of tokens",
      .json = true,
      .aliases = {"tokenise"},
      .description =
          "Special tokens such as <|im_end|> are ordinary text unless --special is given. BOS and EOS are\n"
          "added as the model's metadata asks, unless --no-bos is given.",
      .setup = [](CLI::App& app) {
        auto options = std::make_shared<TokenizeFlags>();
        app.add_option("MODEL", options->model, "Name of a model or path of a GGUF file")->required();
        CLI::Option* text = app.add_option("TEXT", options->text, "Text; standard input when absent");
        app.add_option("-f,--file", options->file, "Read the text from a file ('-': standard input)")
            ->type_name("FILE");
        app.add_flag("--special", options->special,
                     "Recognise special tokens in the text, show them when decoding");
        app.add_flag("--no-bos", options->no_bos, "Add no BOS or EOS token");
        app.add_flag("--ids", options->ids, "Print the ids alone, on one line");
        app.add_flag("--count", options->count, "Print the number of tokens alone");
        app.add_flag("--decode", options->decode,
                     "The text is a list of token ids; print what they stand for");
        add_store_flags(app, options->store);
        return Action([options, text](const Context& context) {
          options->text_given = text->count() > 0;
          return tokenize(context, *options);
        });
      }};
}

}  // namespace isthmus::cli
