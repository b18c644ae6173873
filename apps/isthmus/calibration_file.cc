#include "apps/isthmus/calibration_file.h"

#include "apps/isthmus/input.h"
#include "apps/isthmus/output.h"
#include "os/file.h"

namespace isthmus::cli {

Result<Calibration> open_calibration(const std::string& path) {
  if (!real_file_system().exists(path)) return Calibration{};
  ISTHMUS_ASSIGN_OR_RETURN(const std::string text, read_input(path));
  auto parsed = parse_calibration(text);
  if (!parsed.ok()) return parsed.status().with_context("'" + printable(path) + "'");
  return parsed;
}

std::string calibration_path(const std::string& kv_bits) {
  constexpr std::string_view kPrefix = "asym:";
  if (!kv_bits.starts_with(kPrefix) || parse_kv_bits(kv_bits).ok()) return {};
  const std::string path = kv_bits.substr(kPrefix.size());
  return real_file_system().exists(path) ? path : std::string();
}

Result<KvCodec> calibrated_kv_codec(const std::string& path) {
  ISTHMUS_ASSIGN_OR_RETURN(const Calibration calibration, open_calibration(path));
  if (!calibration.kv_bits) {
    return failed_precondition("'" + printable(path) +
                               "' says nothing of KV bits; isthmus calibrate kv-bits finds them");
  }
  return calibration.kv_bits->codec;
}

Status check_calibrated_model(const std::string& path, const Digest& model) {
  ISTHMUS_ASSIGN_OR_RETURN(const Calibration calibration, open_calibration(path));
  if (calibration.model == model) return ok_status();
  return failed_precondition("'" + printable(path) + "' is the calibration of another model ('" +
                             printable(calibration.label) + "')");
}

}  // namespace isthmus::cli
