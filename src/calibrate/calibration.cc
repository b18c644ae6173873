#include "calibrate/calibration.h"

#include <cmath>

namespace isthmus {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostDepth = 16;
constexpr int kCalibrationVersion = 1;
constexpr size_t kMostLabel = 256;
constexpr std::string_view kFormatName = "isthmus calibration";

Status calibration_problem(const std::string& what) { return corrupt("the calibration " + what); }

/// Null when the text is no JSON object, or nested too deeply.
Json parse_object(std::string_view text) {
  bool too_deep = false;
  const Json::parser_callback_t limit = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMostDepth;
    return !too_deep;
  };
  Json out = Json::parse(text, limit, /*allow_exceptions=*/false);
  if (too_deep || out.is_discarded() || !out.is_object()) return nullptr;
  return out;
}

/// The member `name` as T; nothing when it is not there or of another type.
template <class T>
std::optional<T> member(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return std::nullopt;
  if constexpr (std::is_same_v<T, std::string>) {
    if (!found->is_string()) return std::nullopt;
  } else if constexpr (std::is_floating_point_v<T>) {
    if (!found->is_number() || !std::isfinite(found->template get<double>())) return std::nullopt;
  } else {
    if (!found->is_number_unsigned() || found->template get<uint64_t>() > UINT32_MAX) return std::nullopt;
  }
  return found->template get<T>();
}

Result<KvBitsSection> parse_kv_bits_section(const Json& json) {
  if (!json.is_object()) return calibration_problem("has a section 'kv_bits' that is no object");
  const auto bits = member<std::string>(json, "bits");
  const auto residual = member<uint64_t>(json, "residual");
  const auto keys = member<std::string>(json, "keys");
  const auto held = member<double>(json, "held_bits");
  if (!bits || !residual || !keys || !held || (*keys != "rotated" && *keys != "unrotated")) {
    return calibration_problem("lacks 'bits', 'residual', 'keys' or 'held_bits' in 'kv_bits'");
  }
  KvBitsSection out;
  auto codec = parse_kv_bits(*bits);
  if (!codec.ok()) return calibration_problem("says of 'kv_bits': " + codec.status().message());
  out.codec = std::move(*codec);
  out.codec.residual = *residual;
  out.codec.keys = *keys == "rotated" ? KeyForm::kRotated : KeyForm::kUnrotated;
  out.held_bits = *held;
  if (const auto evidence = json.find("evidence"); evidence != json.end()) out.evidence = *evidence;
  return out;
}

Json section_json(const KvBitsSection& section) {
  return {{"bits", kv_bits_name(section.codec)},
          {"residual", section.codec.residual},
          {"keys", section.codec.keys == KeyForm::kRotated ? "rotated" : "unrotated"},
          {"held_bits", section.held_bits},
          {"evidence", section.evidence}};
}

Json measured_json(const MeasuredCodec& measured) {
  return {
      {"bits", kv_bits_name(measured.codec)},     {"held_bits", measured.held_bits},
      {"mean_kl", measured.distance.mean_kl},     {"mean_kl_standard_error", measured.distance.mean_kl_se},
      {"same_top1", measured.distance.same_top1}, {"perplexity_ratio", measured.distance.perplexity_ratio}};
}

}  // namespace

Result<Calibration> parse_calibration(std::string_view text) {
  if (text.size() > kMaxCalibrationBytes) return calibration_problem("has more than 4 MiB");
  Json json = parse_object(text);
  if (json.is_null()) return calibration_problem("is no JSON object");
  const auto format = member<std::string>(json, "format");
  const auto version = member<uint64_t>(json, "version");
  if (!format || *format != kFormatName || !version) return corrupt("not a calibration of isthmus");
  if (*version != kCalibrationVersion) {
    return unsupported("the calibration has format version " + std::to_string(*version) + ", known is " +
                       std::to_string(kCalibrationVersion));
  }
  const auto model = member<std::string>(json, "model");
  const auto digest = model ? digest_from_hex(*model) : std::nullopt;
  if (!digest) return calibration_problem("names no model");
  Calibration out;
  out.model = *digest;
  out.label = member<std::string>(json, "label").value_or("").substr(0, kMostLabel);
  if (const auto section = json.find("kv_bits"); section != json.end()) {
    ISTHMUS_ASSIGN_OR_RETURN(out.kv_bits, parse_kv_bits_section(*section));
  }
  for (const char* known : {"format", "version", "model", "label", "kv_bits"}) json.erase(known);
  out.others = std::move(json);
  return out;
}

std::string write_calibration(const Calibration& calibration) {
  Json out = {{"format", kFormatName},
              {"version", kCalibrationVersion},
              {"model", hex_of(calibration.model)},
              {"label", calibration.label}};
  if (calibration.kv_bits) out["kv_bits"] = section_json(*calibration.kv_bits);
  if (calibration.others.is_object()) {
    for (const auto& [name, section] : calibration.others.items()) out[name] = section;
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

KvBitsSection kv_bits_section(const TunedKvBits& tuned, const TuneKvOptions& options) {
  KvBitsSection out;
  out.codec = tuned.chosen.codec;
  out.held_bits = tuned.chosen.held_bits;
  out.evidence = {{"target_bits", options.mean_bits},
                  {"windows", options.windows},
                  {"window_tokens", options.window},
                  {"rows_a_window", options.rows},
                  {"chosen", measured_json(tuned.chosen)}};
  Json others = Json::array();
  for (const MeasuredCodec& other : tuned.others) others.push_back(measured_json(other));
  out.evidence["beside"] = std::move(others);
  Json losses = Json::array();
  for (size_t part = 0; part < tuned.losses.size(); ++part) {
    Json row = {{"layer", part / 2}, {"part", part % 2 == 0 ? "keys" : "values"}};
    for (size_t i = 0; i + 1 < kPlanBits.size(); ++i) {
      row["mean_kl_" + std::to_string(kPlanBits[i])] = tuned.losses[part][i];
    }
    losses.push_back(std::move(row));
  }
  out.evidence["alone"] = std::move(losses);
  return out;
}

}  // namespace isthmus
