#include "apps/isthmus/retrieval_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <set>

namespace isthmus::cli {
namespace {

constexpr std::array kWho = {"The baker",     "A retired pilot", "The neighbour's cat", "My aunt",
                             "The librarian", "An old fisher",   "The night porter",    "A travelling choir",
                             "The gardener",  "Our teacher",     "The clock maker",     "A young painter"};
constexpr std::array kDoes = {"watched", "repaired", "sketched", "carried", "described", "looked for",
                              "cleaned", "sold",     "praised",  "forgot",  "borrowed",  "measured"};
constexpr std::array kWhat = {"a wooden boat",   "the tall ladder", "seven blue lamps",  "an unread letter",
                              "the garden wall", "a broken violin", "two heavy trunks",  "the morning paper",
                              "a map of rivers", "the iron gate",   "a basket of pears", "the station bell"};
constexpr std::array kWhen = {"before the rain came",
                              "on the first day of spring",
                              "while the kettle boiled",
                              "without a word",
                              "near the end of the street",
                              "after the last train",
                              "for the third time",
                              "in a very good mood",
                              "under the bridge",
                              "as the lights went out",
                              "with great care",
                              "during the long winter"};
constexpr std::array kColour = {"amber", "crimson", "silver", "violet", "golden", "green", "grey", "scarlet"};
constexpr std::array kPlace = {"harbour", "library", "observatory", "mill",  "greenhouse",
                               "archive", "tower",   "workshop",    "vault", "pavilion"};

template <size_t N>
const char* pick(const std::array<const char*, N>& from, Rng& rng) {
  return from[rng.below(N)];
}

/// Sentences of a text: up to a full stop that a blank or a line end follows.
std::vector<std::string> sentences_of(const std::string& text) {
  std::vector<std::string> out;
  std::string sentence;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool blank = text[i] == '\n' || text[i] == ' ';
    if (blank && (sentence.empty() || sentence.back() == ' ')) continue;
    sentence += blank ? ' ' : text[i];
    if (text[i] != '.' || i + 1 >= text.size() || (text[i + 1] != ' ' && text[i + 1] != '\n')) continue;
    if (sentence.size() > 20) out.push_back(sentence);
    sentence.clear();
  }
  return out;
}

/// Sentences of hay, as many as `tokens` tokens take.
std::vector<std::string> make_hay(const Tokenizer& tokenizer, const std::vector<std::string>& sentences,
                                  size_t tokens, Rng& rng) {
  std::vector<std::string> out;
  size_t at = sentences.empty() ? 0 : rng.below(sentences.size());
  for (size_t have = 0; have < tokens;) {
    out.push_back(sentences.empty() ? fmt::format("{} {} {} {}.", pick(kWho, rng), pick(kDoes, rng),
                                                  pick(kWhat, rng), pick(kWhen, rng))
                                    : sentences[at++ % sentences.size()]);
    have += tokenizer.encode(" " + out.back(), Specials::kAsText, false).size();
  }
  return out;
}

struct Needle {
  std::string name;
  std::string number;
};

std::vector<Needle> make_needles(size_t n, Rng& rng) {
  std::vector<Needle> out;
  std::set<std::string> names;
  while (out.size() < n) {
    std::string name = fmt::format("{} {}", pick(kColour, rng), pick(kPlace, rng));
    if (!names.insert(name).second) continue;
    out.push_back({std::move(name), std::to_string(10'000 + rng.below(90'000))});
  }
  return out;
}

}  // namespace

Result<RetrievalTask> make_retrieval_task(const Tokenizer& tokenizer, const std::string& text, size_t tokens,
                                          size_t needles, double depth, Rng& rng) {
  constexpr size_t kNeedleTokens = 24;  // of a sentence with a needle, generously
  if (needles == 0 || needles > kColour.size() * kPlace.size() / 2 || tokens < 2 * kNeedleTokens * needles) {
    return invalid_argument(fmt::format("{} needles in {} tokens", needles, tokens));
  }
  const std::vector<Needle> hidden = make_needles(needles, rng);
  std::vector<std::string> lines =
      make_hay(tokenizer, sentences_of(text), tokens - kNeedleTokens * needles, rng);
  const auto place = [&](double at) {
    return lines.begin() + static_cast<ptrdiff_t>(std::min(at, 1.0) * static_cast<double>(lines.size()));
  };
  for (size_t i = needles; i-- > 0;) {
    const double at = i == 0 ? depth : static_cast<double>(rng.below(1000)) / 1000.0;
    lines.insert(place(at),
                 fmt::format("The access code of the {} is {}.", hidden[i].name, hidden[i].number));
  }
  std::string context;
  for (const std::string& line : lines) context += (context.empty() ? "" : " ") + line;
  const std::string question =
      fmt::format("\n\nQuestion: What is the access code of the {0}?\nAnswer: The access code of the {0} is",
                  hidden[0].name);
  RetrievalTask task;
  task.context = tokenizer.encode(context, Specials::kAsText, tokenizer.adds_bos());
  task.question = tokenizer.encode(question, Specials::kAsText, false);
  const auto whole = tokenizer.encode(question + " " + hidden[0].number, Specials::kAsText, false);
  size_t shared = 0;  // a token may span the border: it belongs to the answer then
  while (shared < task.question.size() && shared < whole.size() && task.question[shared] == whole[shared])
    ++shared;
  task.question.resize(shared);
  task.answer.assign(whole.begin() + static_cast<ptrdiff_t>(shared), whole.end());
  if (task.question.empty() || task.answer.empty()) return internal_error("a question without tokens");
  return task;
}

}  // namespace isthmus::cli
