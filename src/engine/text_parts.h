// Texts put together of parts whose KV was computed apart (Session::compose): what the parts are, and how
// much of them is computed anew so that it sees what stands before it.
//
// Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "kv/sequence.h"
#include "model/transformer.h"

namespace isthmus {

/// Tokens at the positions from `position` on. `kv` holds their KV there, as its tokens [0, tokens.size());
/// null: they are computed where they come to stand, and see all before them.
struct TextPart {
  std::span<const TokenId> tokens;
  size_t position = 0;
  const KvSequence* kv = nullptr;
  /// Of the copy of `kv`, at best.
  Exactness exactness = Exactness::kComposed;
  /// Positions by which the part stands behind where its keys were rotated to (before it: negative): the
  /// copy's keys are turned by as many, which rounds them once more.
  int32_t turn = 0;
};

/// Which tokens of copied parts are computed anew behind what stands before them.
enum class RepairKind : uint8_t {
  kNone,
  kFirst,  // the first ones of each part, which took themselves for the beginning of a text (EPIC, Hu et al.
           // 2024, arXiv 2410.15332)
  kDeviating,  // those whose values in the second layer change most (CacheBlend, Yao et al. 2025, arXiv
               // 2405.16444)
  kAll,        // every one: a prompt read as a whole, with the schema's positions
};

struct RepairOptions {
  RepairKind kind = RepairKind::kNone;
  size_t first = 0;  // tokens of each part
  double share = 0;  // of all copied tokens
};

/// "none", "first:16", "deviating:0.1", "all". kInvalidArgument says what is possible.
Result<RepairOptions> parse_repair(std::string_view text);
std::string repair_name(const RepairOptions& repair);

/// What became of a text's parts.
struct ComposeFigures {
  size_t tokens = 0;
  size_t copied = 0;    // tokens whose KV came from parts
  size_t repaired = 0;  // of those, computed anew
  /// Work spent on copied tokens, of what reading them would be: repaired ones, and the layers in which
  /// deviating ones were looked for.
  double recomputed = 0;
  double seconds = 0;
};

}  // namespace isthmus
