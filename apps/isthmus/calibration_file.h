// Calibrations as files, for the commands that make and use them.
#pragma once

#include <string>

#include "apps/isthmus/command.h"
#include "calibrate/calibration.h"

namespace isthmus::cli {

/// What the file says; an empty calibration (no model) when it is not there. Errors name the file.
Result<Calibration> open_calibration(const std::string& path);
/// "asym:FILE": the file; empty when `kv_bits` is no such text.
std::string calibration_path(const std::string& kv_bits);
/// The codec of such a file. kFailedPrecondition when nobody measured one.
Result<KvCodec> calibrated_kv_codec(const std::string& path);
/// kFailedPrecondition when the file is of another model than `model`.
Status check_calibrated_model(const std::string& path, const Digest& model);

}  // namespace isthmus::cli
