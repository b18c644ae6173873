#include "base/suggest.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace isthmus {
namespace {

constexpr size_t kLongestWord = 256;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

/// Letters and digits of a word, lower case: what is left when the punctuation is a matter of taste.
std::string bare(std::string_view word) {
  std::string out;
  for (const char c : lower(word)) {
    if (c != '-' && c != '_' && c != '.' && c != ':' && c != ' ') out += c;
  }
  return out;
}

}  // namespace

size_t edit_distance(std::string_view left, std::string_view right) {
  const std::string a = lower(left);
  const std::string b = lower(right);
  // Three rows of the dynamic programme: two rows back (for swaps), one row back, this one.
  std::vector<size_t> two_back(b.size() + 1);
  std::vector<size_t> back(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) back[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = back[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replace, back[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], two_back[j - 2] + 1);
      }
    }
    std::swap(two_back, back);
    std::swap(back, row);
  }
  return back[b.size()];
}

std::vector<std::string> suggest(std::string_view word, std::span<const std::string> candidates,
                                 size_t limit) {
  if (word.empty() || word.size() > kLongestWord) return {};
  const size_t reach = std::max<size_t>(1, word.size() / 3);
  const std::string lowered = lower(word);
  const std::string bare_word = bare(word);
  std::vector<std::pair<size_t, std::string>> found;  // rank, candidate
  for (const std::string& candidate : candidates) {
    if (candidate.empty() || candidate.size() > kLongestWord) continue;
    const size_t distance = edit_distance(word, candidate);
    if (!bare_word.empty() && bare(candidate) == bare_word) {
      found.emplace_back(0, candidate);
    } else if (distance <= reach && distance < candidate.size()) {
      found.emplace_back(distance, candidate);
    } else if (word.size() >= 2 && lower(candidate).starts_with(lowered)) {
      found.emplace_back(reach + 1, candidate);
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  std::vector<std::string> out;
  for (auto& [rank, candidate] : found) {
    if (out.size() == limit) break;
    out.push_back(std::move(candidate));
  }
  return out;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const std::vector<std::string> words = suggest(word, candidates);
  if (words.empty()) return "";
  std::string out = "; did you mean ";
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " or " : ", ";
    out += "'" + words[i] + "'";
  }
  return out + "?";
}

}  // namespace isthmus
