#include "kv/kv_codec.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace isthmus {
namespace {

constexpr int kBitChoices[] = {1, 2, 4, 8, 16};
constexpr size_t kMostCodedLayers = 1024;
constexpr size_t kMostResidual = 4096;

std::optional<int> parse_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::optional<int> parse_bits(std::string_view text) {
  const auto value = parse_number(text);
  if (!value || std::find(std::begin(kBitChoices), std::end(kBitChoices), *value) == std::end(kBitChoices)) {
    return std::nullopt;
  }
  return value;
}

/// "4" or "k4v2".
std::optional<KvBits> parse_pair(std::string_view text) {
  if (const auto both = parse_bits(text)) return KvBits{*both, *both};
  const size_t v = text.find('v');
  if (!text.starts_with('k') || v == std::string_view::npos) return std::nullopt;
  const auto k_bits = parse_bits(text.substr(1, v - 1));
  const auto v_bits = parse_bits(text.substr(v + 1));
  if (!k_bits || !v_bits) return std::nullopt;
  return KvBits{*k_bits, *v_bits};
}

/// "A/B".
std::optional<std::pair<int, int>> parse_two(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto first = parse_number(text.substr(0, slash));
  const auto second = parse_number(text.substr(slash + 1));
  if (!first || !second) return std::nullopt;
  return std::pair(*first, *second);
}

Status no_bits(std::string_view text) {
  return invalid_argument("'" + std::string(text.substr(0, 60)) +
                          "' are no bits of a KV cache; write 8, 4, 2, 1, k4v2, one of those for each layer "
                          "with commas between, or asym:16/0 or asym:16/0:4/2");
}

Result<KvCodec> parse_asymmetric(std::string_view text, std::string_view whole) {
  KvCodec out;
  out.asymmetric = true;
  const size_t colon = text.find(':');
  const auto layers = parse_two(text.substr(0, colon));
  auto bits = std::optional(std::pair(2, 1));
  if (colon != std::string_view::npos) bits = parse_two(text.substr(colon + 1));
  if (!layers || !bits || !parse_bits(std::to_string(bits->first)) ||
      !parse_bits(std::to_string(bits->second))) {
    return no_bits(whole);
  }
  if (bits->first < bits->second) {
    return invalid_argument("asym: the first layers get the higher bits, not " + std::to_string(bits->first) +
                            " against " + std::to_string(bits->second));
  }
  out.high_k_layers = static_cast<size_t>(layers->first);
  out.high_v_layers = static_cast<size_t>(layers->second);
  out.layers = {{bits->first, bits->first}, {bits->second, bits->second}};
  return out;
}

KvType type_of(int bits, KvType open) {
  switch (bits) {
    case 8:
      return KvType::kKivi8;
    case 4:
      return KvType::kKivi4;
    case 2:
      return KvType::kKivi2;
    case 1:
      return KvType::kKivi1;
    default:
      return open;
  }
}

std::string pair_name(KvBits bits) {
  if (bits.k == bits.v) return std::to_string(bits.k);
  return "k" + std::to_string(bits.k) + "v" + std::to_string(bits.v);
}

}  // namespace

KvBits bits_of_layer(const KvCodec& codec, size_t layer) {
  if (codec.asymmetric) {
    return {codec.layers[layer < codec.high_k_layers ? 0 : 1].k,
            codec.layers[layer < codec.high_v_layers ? 0 : 1].v};
  }
  return codec.layers.size() == 1 ? codec.layers.front() : codec.layers[layer];
}

Result<KvCodec> parse_kv_bits(std::string_view text) {
  constexpr std::string_view kAsymmetric = "asym:";
  if (text.starts_with(kAsymmetric)) return parse_asymmetric(text.substr(kAsymmetric.size()), text);
  KvCodec out;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const auto bits = parse_pair(rest.substr(0, comma));
    if (!bits || out.layers.size() == kMostCodedLayers) return no_bits(text);
    out.layers.push_back(*bits);
    if (comma == std::string_view::npos) break;
    rest = rest.substr(comma + 1);
  }
  const auto plain = [](KvBits bits) { return bits == KvBits{}; };
  if (std::all_of(out.layers.begin(), out.layers.end(), plain)) out.layers.clear();
  return out;
}

std::string kv_bits_name(const KvCodec& codec) {
  if (!codec.on()) return "16";
  if (codec.asymmetric) {
    return "asym:" + std::to_string(codec.high_k_layers) + "/" + std::to_string(codec.high_v_layers) + ":" +
           std::to_string(codec.layers[0].k) + "/" + std::to_string(codec.layers[1].k);
  }
  std::string out;
  for (const KvBits bits : codec.layers) out += (out.empty() ? "" : ",") + pair_name(bits);
  return out;
}

Result<std::vector<KvFormat>> coded_formats(const KvCodec& codec, KvFormat open, size_t layers) {
  std::vector<KvFormat> out;
  if (!codec.on()) return out;
  if (codec.residual < kBlockKeys || codec.residual > kMostResidual || codec.residual % kBlockKeys != 0) {
    return invalid_argument("a residual of " + std::to_string(codec.residual) +
                            " tokens; it is a multiple of 32 from 32 to " + std::to_string(kMostResidual));
  }
  if (!codec.asymmetric && codec.layers.size() != 1 && codec.layers.size() != layers) {
    return invalid_argument("bits for " + std::to_string(codec.layers.size()) + " layers; the model has " +
                            std::to_string(layers));
  }
  if (codec.asymmetric && std::max(codec.high_k_layers, codec.high_v_layers) > layers) {
    return invalid_argument("asym: " + std::to_string(codec.high_k_layers) + "/" +
                            std::to_string(codec.high_v_layers) + " layers of higher bits; the model has " +
                            std::to_string(layers));
  }
  for (size_t i = 0; i < layers; ++i) {
    const KvBits bits = bits_of_layer(codec, i);
    out.push_back({type_of(bits.k, open.k_type), type_of(bits.v, open.v_type)});
  }
  return out;
}

KvFormat level_format(int bits) { return {type_of(bits, KvType::kF16), type_of(bits, KvType::kF16)}; }

double mean_bits(const std::vector<KvFormat>& formats, size_t head_dim) {
  size_t bytes = 0;
  for (const KvFormat format : formats) {
    bytes += kv_part_bytes(format.k_type, KvPart::kKey, head_dim) +
             kv_part_bytes(format.v_type, KvPart::kValue, head_dim);
  }
  const size_t values = 2 * head_dim * kBlockKeys * std::max<size_t>(1, formats.size());
  return 8.0 * static_cast<double>(bytes) / static_cast<double>(values);
}

}  // namespace isthmus
