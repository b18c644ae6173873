// A calibration: what was measured of one model once, with the evidence, as a JSON file
// (docs/formats/calibration.md).
//
// A calibration belongs to the model whose SHA-256 it names; who uses it compares. Sections that this version
// does not know are kept as they are, so that versions can share a file. The text is untrusted.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/digest.h"
#include "base/status.h"
#include "calibrate/tune_kv_bits.h"

namespace isthmus {

/// The section `kv_bits`.
struct KvBitsSection {
  KvCodec codec;
  double held_bits = 16;            // mean bits of a value, scale and minimum included
  nlohmann::ordered_json evidence;  // how it was found; for people
};

struct Calibration {
  Digest model{};     // SHA-256 of the model's file
  std::string label;  // the model's name, for people
  std::optional<KvBitsSection> kv_bits;
  nlohmann::ordered_json others;  // sections unknown here: an object
};

inline constexpr size_t kMaxCalibrationBytes = size_t{4} << 20;

/// kCorrupt says which part is missing or wrong; kUnsupported: another version of the format.
Result<Calibration> parse_calibration(std::string_view text);
std::string write_calibration(const Calibration& calibration);

/// The section of what tune_kv_bits() found.
KvBitsSection kv_bits_section(const TunedKvBits& tuned, const TuneKvOptions& options);

}  // namespace isthmus
