#include "engine/stream_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "kernels/isa.h"
#include "os/cpu.h"

namespace isthmus {
namespace {

constexpr std::string_view kVersion = "streams-1";
constexpr size_t kMostText = size_t{64} * 1024;
constexpr size_t kFields = 7;

template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// A name without what separates fields and lines.
std::string field_text(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\t' || c == '\n' || c == '\r'; }, ' ');
  return text;
}

std::optional<StreamRecord> parse_line(std::string_view line) {
  std::string_view fields[kFields];
  for (size_t i = 0; i < kFields; ++i) {
    const size_t tab = line.find('\t');
    if ((tab == std::string_view::npos) != (i + 1 == kFields)) return std::nullopt;
    fields[i] = line.substr(0, tab);
    if (tab != std::string_view::npos) line.remove_prefix(tab + 1);
  }
  const auto threads = number<size_t>(fields[3]);
  const auto panels = number<size_t>(fields[4]);
  const auto prefetch = number<size_t>(fields[5]);
  const auto speed = number<double>(fields[6]);
  if (fields[0] != kVersion || !threads || !panels || !prefetch || !speed) return std::nullopt;
  const StreamPlan plan{*panels, *prefetch, *speed};
  if (*threads == 0 || !is_stream_candidate(plan) || !(plan.gb_per_s > 0 && plan.gb_per_s < 1e6)) {
    return std::nullopt;
  }
  return StreamRecord{std::string(fields[1]), std::string(fields[2]), *threads, plan};
}

bool same_place(const StreamRecord& a, const StreamRecord& b) {
  return a.cpu == b.cpu && a.isa == b.isa && a.threads == b.threads;
}

StreamRecord this_place(const ThreadPool& pool) {
  const auto isa = active_isa();
  return {field_text(os::cpu_info().model_name),
          isa.ok() ? std::string(isa_name(*isa)) : "none",
          pool.size(),
          {}};
}

void remember(FileSystem& files, const std::string& path, std::vector<StreamRecord> records,
              StreamRecord mine) {
  if (path.empty()) return;
  std::erase_if(records, [&](const StreamRecord& record) { return same_place(record, mine); });
  records.insert(records.begin(), std::move(mine));  // a full file loses its oldest
  if (records.size() > kMostStreamRecords) records.resize(kMostStreamRecords);
  std::error_code ignored;
  std::filesystem::create_directories(directory_of(path), ignored);
  const std::string text = format_stream_records(records);
  // Only time is lost when this fails.
  (void)publish_file(files, path, std::as_bytes(std::span(text)));
}

}  // namespace

std::vector<StreamRecord> parse_stream_records(std::string_view text) {
  std::vector<StreamRecord> records;
  while (!text.empty() && records.size() < kMostStreamRecords) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (auto record = parse_line(text.substr(0, end))) records.push_back(std::move(*record));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return records;
}

std::vector<StreamRecord> read_stream_records(FileSystem& files, const std::string& path) {
  std::error_code error;
  // A pipe would wait for a writer.
  if (path.empty() || !std::filesystem::is_regular_file(path, error)) return {};
  const auto text = files.read(path, kMostText);
  return text.ok() ? parse_stream_records(*text) : std::vector<StreamRecord>();
}

std::string format_stream_records(std::span<const StreamRecord> records) {
  std::string text;
  for (const StreamRecord& r : records) {
    text += fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{:.2f}\n", kVersion, field_text(r.cpu), field_text(r.isa),
                        r.threads, r.plan.panels, r.plan.prefetch_bytes, r.plan.gb_per_s);
  }
  return text;
}

StreamSource choose_streams(const Transformer& model, ThreadPool& pool, FileSystem& files,
                            const std::string& path) {
  StreamRecord mine = this_place(pool);
  std::vector<StreamRecord> records = read_stream_records(files, path);
  for (const StreamRecord& record : records) {
    if (!same_place(record, mine)) continue;
    set_stream_plan(record.plan);
    return StreamSource::kRemembered;
  }
  const auto plan = measure_streams(model.matrices(), pool);
  if (!plan.ok()) return StreamSource::kDefault;
  mine.plan = *plan;
  set_stream_plan(*plan);
  remember(files, path, std::move(records), std::move(mine));
  return StreamSource::kMeasured;
}

}  // namespace isthmus
