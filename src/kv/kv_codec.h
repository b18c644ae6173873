// Which codes the full blocks of each layer become: the settings of KV quantisation.
//
// KIVI (Liu et al. 2024, arXiv 2402.02750): keys per dimension over 32 tokens, values per token over 32
// dimensions, the newest tokens as written. AsymKV (Tao et al. 2025, arXiv 2410.13212): the first `l_k`
// layers' keys and the first `l_v` layers' values get more bits than the others. Plain data; pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kv/block_pool.h"

namespace isthmus {

/// Bits of keys and values; 16: as written.
struct KvBits {
  int k = 16;
  int v = 16;
  friend bool operator==(const KvBits&, const KvBits&) = default;
};

/// How keys are held while they wait to be coded, and coded.
enum class KeyForm : uint8_t {
  kRotated,    // as attention wants them
  kUnrotated,  // attention rotates them each time it reads them: somewhat nearer to the truth, and slower
};

struct KvCodec {
  /// One for all layers, or one a layer; empty: no codes.
  std::vector<KvBits> layers = {};
  /// AsymKV: `layers` holds the high and the low bits, and these say how many layers are high.
  bool asymmetric = false;
  size_t high_k_layers = 0;
  size_t high_v_layers = 0;
  size_t residual = 128;  // tokens that are coded together; the newest, fewer than that, stay as written
  KeyForm keys = KeyForm::kRotated;

  bool on() const { return !layers.empty(); }
};

/// "8", "4", "2", "1": bits of both; "k4v2": of keys and values; "asym:LK/LV" and "asym:LK/LV:HIGH/LOW"
/// (2/1 unless said): AsymKV; "k8v4,k4v2,…": layer by layer; "16": no codes. kInvalidArgument says what is
/// wrong.
Result<KvCodec> parse_kv_bits(std::string_view text);
/// The same in that notation.
std::string kv_bits_name(const KvCodec& codec);

/// Bits of a layer; codec.on().
KvBits bits_of_layer(const KvCodec& codec, size_t layer);
/// What each of `layers` layers' full blocks become, `open` being what is written. kInvalidArgument when the
/// codec is of another number of layers or its residual is no multiple of 32 between 32 and 4,096.
Result<std::vector<KvFormat>> coded_formats(const KvCodec& codec, KvFormat open, size_t layers);
/// Keys and values of `bits` 8, 4, 2 or 1.
KvFormat level_format(int bits);
/// Mean bits of a coded value, scales and minima included; the same for keys and values together.
double mean_bits(const std::vector<KvFormat>& formats, size_t head_dim);

}  // namespace isthmus
