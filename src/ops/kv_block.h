// Storage of one KV block: 32 tokens of one layer and one KV head, the K part and the V part typed
// separately.
//
// A part is plain bytes owned by the caller (the block pool), 64-byte aligned, kv_part_bytes() long. Layouts:
// K is [head_dim][32 slots], so scores read 32 keys with unit stride; V is [32 slots][padded_dim(head_dim)],
// the padding zero; kQ8 and the KIVI types are laid out for integer dot
// products (kernels/generic/attention_kernels.h). A slot is written once in full before attention may read
// it; other slots may hold any bytes. Parts of KIVI types are not written slot by slot: kv_encode() makes
// them of full parts. Writing different slots of one block from several threads is safe for memory but slow
// (shared cache lines); reading is thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "kernels/generic/attention_kernels.h"

namespace isthmus {

enum class KvPart : uint8_t { kKey, kValue };

/// Facts about a codec.
struct KvTypeInfo {
  KvType type;
  std::string_view name;  // "f32", "f16", "bf16", "q8_0", "kivi8", "kivi4", "kivi2", "kivi1"
  size_t value_bits;      // of one stored value, scales apart
  bool exact;             // what is read back is the written row rounded value by value
};

const KvTypeInfo& kv_type_info(KvType type);
/// The codec with this name, if there is one.
std::optional<KvType> kv_type_from_name(std::string_view name);

/// Bytes of a part, a multiple of 64: the same for K and V of one type unless head_dim needs padding.
/// head_dim is a multiple of 8 in [8, 1024] (checked where a model is loaded).
size_t kv_part_bytes(KvType type, KvPart part, size_t head_dim);

/// For types below kSlotKvTypes. Stores row[head_dim] as slot `slot` (< 32), rounded to nearest even.
void kv_write(KvType type, KvPart part, std::byte* block, size_t slot, const float* row, size_t head_dim);
/// Stores rows[count][ld] as slots [slot, slot + count), the same bytes as `count` calls of kv_write, faster.
void kv_write_rows(KvType type, KvPart part, std::byte* block, size_t slot, size_t count, const float* rows,
                   size_t ld, size_t head_dim);
/// A full part of a type that is written by slots to a KIVI type: the rounding of
/// AttentionKernels::encode_keys and encode_values.
void kv_encode(KvType from_type, KvPart part, const std::byte* from, KvType type, std::byte* to,
               size_t head_dim);
/// Copies slots [from_slot, from_slot + count) of one part to those from `to_slot` on of another, of the same
/// type below kSlotKvTypes.
void kv_copy(KvType type, KvPart part, const std::byte* from, size_t from_slot, std::byte* to, size_t to_slot,
             size_t count, size_t head_dim);
/// Reads slot `slot` back as float32, exact.
void kv_read(KvType type, KvPart part, const std::byte* block, size_t slot, float* row, size_t head_dim);

}  // namespace isthmus
