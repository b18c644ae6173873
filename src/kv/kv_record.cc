#include "kv/kv_record.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/byte_reader.h"
#include "base/checked.h"

namespace isthmus {
namespace {

// Limits of what a record may say of itself, so that sizes cannot overflow.
constexpr uint32_t kMostLayers = 1U << 16;
constexpr uint32_t kMostKvHeads = 1U << 16;
constexpr uint32_t kMostCodedTogether = 1U << 16;
constexpr uint8_t kMostEncoding = static_cast<uint8_t>(KeyEncoding::kUnrotated);
constexpr uint8_t kMostExactness = static_cast<uint8_t>(Exactness::kPredicted);

void append_bytes(std::vector<std::byte>& out, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const size_t at = out.size();
  out.resize(at + bytes.size());
  std::memcpy(out.data() + at, bytes.data(), bytes.size());
}

template <class T>
void append_value(std::vector<std::byte>& out, const T& value) {
  append_bytes(out, std::as_bytes(std::span(&value, 1)));
}

/// The description of a record without its tokens.
std::vector<std::byte> encode_space(const KvSpace& space) {
  std::vector<std::byte> out;
  for (const uint32_t value : {space.layers, space.kv_heads, space.head_dim}) append_value(out, value);
  for (const uint8_t value :
       {static_cast<uint8_t>(space.k_type), static_cast<uint8_t>(space.v_type),
        static_cast<uint8_t>(space.key_encoding), static_cast<uint8_t>(space.exactness)}) {
    append_value(out, value);
  }
  append_value(out, uint32_t{space.computed_by});
  append_bytes(out, space.salt);
  return out;
}

/// Takes a description apart; false when a part is missing or out of range.
bool decode_space(ByteReader& reader, KvSpace& space) {
  const auto layers = reader.read<uint32_t>();
  const auto kv_heads = reader.read<uint32_t>();
  const auto head_dim = reader.read<uint32_t>();
  const auto k_type = reader.read<uint8_t>();
  const auto v_type = reader.read<uint8_t>();
  const auto encoding = reader.read<uint8_t>();
  const auto exactness = reader.read<uint8_t>();
  const auto computed_by = reader.read<uint32_t>();
  const auto salt = reader.take(sizeof(Digest));
  if (!salt || *layers == 0 || *layers > kMostLayers || *kv_heads == 0 || *kv_heads > kMostKvHeads) {
    return false;
  }
  if (*head_dim == 0 || *head_dim % 8 != 0 || *head_dim > kMaxHeadDim) return false;
  if (*k_type >= kSlotKvTypes || *v_type >= kSlotKvTypes || *encoding > kMostEncoding) return false;
  if (*exactness > kMostExactness || *computed_by > 0xFF) return false;
  space.layers = *layers;
  space.kv_heads = *kv_heads;
  space.head_dim = *head_dim;
  space.k_type = static_cast<KvType>(*k_type);
  space.v_type = static_cast<KvType>(*v_type);
  space.key_encoding = static_cast<KeyEncoding>(*encoding);
  space.exactness = static_cast<Exactness>(*exactness);
  space.computed_by = static_cast<ComputeSet>(*computed_by);
  std::copy(salt->begin(), salt->end(), space.salt.begin());
  return true;
}

/// The end of a description, where blocks are coded.
std::vector<std::byte> encode_coded(const KvSpace& space) {
  std::vector<std::byte> out;
  if (space.coded.empty()) return out;
  append_value(out, space.residual);
  for (const KvFormat& format : space.coded) {
    append_value(out, static_cast<uint8_t>(format.k_type));
    append_value(out, static_cast<uint8_t>(format.v_type));
  }
  return out;
}

bool decode_coded(ByteReader& reader, KvSpace& space) {
  const auto residual = reader.read<uint32_t>();
  const auto formats = reader.take(2 * size_t{space.layers});
  if (!residual || !formats || *residual == 0 || *residual % kBlockKeys != 0 ||
      *residual > kMostCodedTogether) {
    return false;
  }
  space.residual = *residual;
  for (size_t layer = 0; layer < space.layers; ++layer) {
    const auto k_type = std::to_integer<uint8_t>((*formats)[2 * layer]);
    const auto v_type = std::to_integer<uint8_t>((*formats)[2 * layer + 1]);
    if (k_type >= kKvTypes || v_type >= kKvTypes) return false;
    space.coded.push_back({static_cast<KvType>(k_type), static_cast<KvType>(v_type)});
  }
  return true;
}

uint64_t layer_block_bytes(const KvSpace& space, size_t layer) {
  const KvFormat format = space.format(layer);
  return kv_part_bytes(format.k_type, KvPart::kKey, space.head_dim) +
         kv_part_bytes(format.v_type, KvPart::kValue, space.head_dim);
}

/// Calls f(stream, offset, bytes) for each stream: where its first block is among `count` of each stream, and
/// the bytes of one of its blocks.
template <class F>
void for_each_stream(const KvSpace& space, size_t count, F f) {
  size_t offset = 0;
  for (size_t stream = 0; stream < size_t{space.layers} * space.kv_heads; ++stream) {
    const size_t bytes = layer_block_bytes(space, stream / space.kv_heads);
    f(stream, offset, bytes);
    offset += count * bytes;
  }
}

Result<Digest> root_key(const KvSpace& space, DigestFunction digest) {
  static constexpr std::string_view kWhat = "isthmus kv 1";
  std::vector<std::byte> bytes;
  append_bytes(bytes, std::as_bytes(std::span(kWhat)));
  append_bytes(bytes, space.identity);
  append_bytes(bytes, encode_space(space));
  append_bytes(bytes, encode_coded(space));
  return digest(bytes);
}

/// tokens: 32 of them.
Result<Digest> block_key(const Digest& parent, std::span<const int32_t> tokens, DigestFunction digest) {
  std::vector<std::byte> bytes;
  append_bytes(bytes, parent);
  append_bytes(bytes, std::as_bytes(tokens));
  return digest(bytes);
}

/// The blocks of all streams at one place of a text, held while they are looked at.
class SharedBlocks {
 public:
  SharedBlocks(const KvSequence& kv, size_t index) : pool_(kv.pool()) { kv.share_block(index, ids_); }
  SharedBlocks(const SharedBlocks&) = delete;
  SharedBlocks& operator=(const SharedBlocks&) = delete;
  ~SharedBlocks() {
    for (const BlockId id : ids_) pool_->release(id);
  }
  std::span<const BlockId> ids() const { return ids_; }
  /// What of them is not as it must be; empty: nothing.
  std::string problem(const KvSpace& space) const;

 private:
  const std::shared_ptr<BlockPool>& pool_;
  std::vector<BlockId> ids_;
};

std::string SharedBlocks::problem(const KvSpace& space) const {
  for (size_t stream = 0; stream < ids_.size(); ++stream) {
    const BlockHeader& header = std::as_const(*pool_).header(ids_[stream]);
    const KvFormat format = space.format(stream / space.kv_heads);
    if (!header.sealed || header.valid != ~uint32_t{0}) return "is not complete";
    if (header.k_type != format.k_type || header.v_type != format.v_type) return "is of another type";
    const bool open = format == KvFormat{space.k_type, space.v_type};
    const bool as_written = open && header.exactness == Exactness::kExact;
    if (header.exactness != space.exactness && !as_written) return "is of another exactness";
    if (header.computed_by != space.computed_by) return "was computed by another arithmetic";
    if (header.key_encoding != space.key_encoding) return "has its keys encoded in another way";
  }
  return {};
}

Status check_request(const KvSequence& kv, const KvKeys& keys, std::span<const int32_t> tokens, size_t first,
                     size_t count) {
  const size_t end = first + count;
  if (kv.pruned()) return failed_precondition("keys of the text were given up: nothing of it is kept");
  if (kv.gaps()) return failed_precondition("positions of the text leave gaps: nothing of it is kept");
  if (count == 0 || count > kKvRecordBlocks || end > keys.blocks.size() ||
      end * kBlockKeys > std::min(kv.length(), tokens.size())) {
    return invalid_argument("blocks " + std::to_string(first) + " to " + std::to_string(end) +
                            " of a text of " + std::to_string(kv.length()) + " tokens make no record");
  }
  return ok_status();
}

Status differs(const char* what) {
  return failed_precondition(std::string("the KV record does not fit: ") + what);
}

}  // namespace

KvSpace kv_space(const KvSequence& kv, Compute compute, const Digest& identity, const Digest& salt) {
  const BlockPoolConfig& config = kv.pool()->config();
  KvSpace out;
  out.identity = identity;
  out.salt = salt;
  out.layers = static_cast<uint32_t>(kv.layers());
  out.kv_heads = static_cast<uint32_t>(kv.kv_heads());
  out.head_dim = static_cast<uint32_t>(config.head_dim);
  out.k_type = config.k_type;
  out.v_type = config.v_type;
  out.key_encoding = config.key_encoding;
  const bool exact = kv_type_info(config.k_type).exact && kv_type_info(config.v_type).exact;
  out.exactness = exact && config.coded.empty() ? Exactness::kExact : Exactness::kQuantised;
  out.computed_by = compute_bit(compute);
  out.coded = config.coded;
  if (!out.coded.empty()) out.residual = static_cast<uint32_t>(config.residual);
  return out;
}

uint64_t kv_space_block_bytes(const KvSpace& space) {
  uint64_t bytes = 0;
  for (size_t layer = 0; layer < space.layers; ++layer) bytes += layer_block_bytes(space, layer);
  return bytes * space.kv_heads;
}

Result<KvKeys> kv_keys(const KvSpace& space, std::span<const int32_t> tokens, DigestFunction digest) {
  KvKeys out;
  ISTHMUS_ASSIGN_OR_RETURN(out.root, root_key(space, digest));
  Digest parent = out.root;
  for (; tokens.size() >= kBlockKeys; tokens = tokens.subspan(kBlockKeys)) {
    ISTHMUS_ASSIGN_OR_RETURN(parent, block_key(parent, tokens.first(kBlockKeys), digest));
    out.blocks.push_back(parent);
  }
  return out;
}

size_t kv_blocks_as(const KvSequence& kv, const KvSpace& space, size_t blocks) {
  if (kv.pruned() || kv.gaps()) return 0;
  const size_t most = std::min(blocks, kv.length() / kBlockKeys);
  size_t n = 0;
  while (n < most && SharedBlocks(kv, n).problem(space).empty()) ++n;
  return n / space.unit() * space.unit();
}

Result<std::vector<std::byte>> encode_kv_record(const KvSequence& kv, const KvSpace& space,
                                                const KvKeys& keys, std::span<const int32_t> tokens,
                                                size_t first, size_t count, const std::string& label) {
  ISTHMUS_RETURN_IF_ERROR(check_request(kv, keys, tokens, first, count));
  RecordHead head;
  head.label = label.substr(0, kMaxRecordLabel);
  head.identity = space.identity;
  head.parent = first == 0 ? keys.root : keys.blocks[first - 1];
  head.keys.assign(keys.blocks.begin() + static_cast<ptrdiff_t>(first),
                   keys.blocks.begin() + static_cast<ptrdiff_t>(first + count));
  head.first_token = static_cast<uint32_t>(first * kBlockKeys);
  head.tokens = static_cast<uint32_t>(count * kBlockKeys);
  head.description = encode_space(space);
  append_bytes(head.description, std::as_bytes(tokens.subspan(first * kBlockKeys, count * kBlockKeys)));
  append_bytes(head.description, encode_coded(space));
  RecordWriter writer(std::move(head), kv_space_block_bytes(space) * count);
  for (size_t block = 0; block < count; ++block) {
    const SharedBlocks shared(kv, first + block);
    const std::string problem = shared.problem(space);
    if (!problem.empty()) {
      return failed_precondition("block " + std::to_string(first + block) + " cannot be kept: it " + problem);
    }
    for_each_stream(space, count, [&](size_t stream, size_t offset, size_t bytes) {
      std::memcpy(writer.data().data() + offset + block * bytes, kv.pool()->k(shared.ids()[stream]), bytes);
    });
  }
  return writer.finish();
}

Result<KvRecord> KvRecord::parse(std::span<const std::byte> bytes) {
  ISTHMUS_ASSIGN_OR_RETURN(StoredRecord record, parse_record(bytes));
  KvRecord out;
  out.head_ = std::move(record.head);
  out.data_ = record.data;
  ByteReader reader(out.head_.description);
  const size_t blocks = out.head_.keys.size();
  if (!decode_space(reader, out.space_)) return corrupt("the KV record's shape is out of range");
  out.space_.identity = out.head_.identity;
  const auto tokens = reader.take(blocks * kBlockKeys * sizeof(int32_t));
  if (tokens && !reader.at_end() && !decode_coded(reader, out.space_)) {
    return corrupt("the KV record's codes are out of range");
  }
  if (!tokens || !reader.at_end() || blocks > kKvRecordBlocks || out.head_.tokens != blocks * kBlockKeys ||
      out.head_.first_token % kBlockKeys != 0) {
    return corrupt("the KV record's tokens do not match its keys");
  }
  out.tokens_.resize(blocks * kBlockKeys);
  std::memcpy(out.tokens_.data(), tokens->data(), tokens->size());
  // The limits of decode_space() keep this below 2^63.
  if (out.data_.size() != kv_space_block_bytes(out.space_) * blocks) {
    return corrupt("the KV record has " + std::to_string(out.data_.size()) + " bytes of data, its shape " +
                   std::to_string(kv_space_block_bytes(out.space_) * blocks));
  }
  return out;
}

Status KvRecord::check_space(const KvSpace& wanted) const {
  if (space_ == wanted) return ok_status();
  if (space_.identity != wanted.identity) return differs("it was made by another model");
  if (space_.salt != wanted.salt) return differs("it belongs to another app");
  if (space_.layers != wanted.layers) return differs("another number of layers");
  if (space_.kv_heads != wanted.kv_heads) return differs("another number of KV heads");
  if (space_.head_dim != wanted.head_dim) return differs("another size of heads");
  if (space_.k_type != wanted.k_type || space_.v_type != wanted.v_type) return differs("another type of KV");
  if (space_.coded != wanted.coded || space_.residual != wanted.residual) {
    return differs("blocks coded in another way");
  }
  if (space_.key_encoding != wanted.key_encoding) return differs("keys encoded in another way");
  if (space_.computed_by != wanted.computed_by) return differs("computed by another arithmetic");
  return differs("another exactness");
}

Status KvRecord::check_keys(DigestFunction digest) const {
  if (first_block() == 0) {
    ISTHMUS_ASSIGN_OR_RETURN(const Digest root, root_key(space_, digest));
    if (root != head_.parent) return corrupt("the KV record's first key is not that of its model");
  }
  Digest parent = head_.parent;
  for (size_t i = 0; i < blocks(); ++i) {
    const auto block = std::span(tokens_).subspan(i * kBlockKeys, kBlockKeys);
    ISTHMUS_ASSIGN_OR_RETURN(parent, block_key(parent, block, digest));
    if (parent != head_.keys[i]) return corrupt("the KV record's keys are not those of its tokens");
  }
  return ok_status();
}

size_t KvRecord::matching_blocks(std::span<const int32_t> text) const {
  if (text.size() < head_.first_token) return 0;
  const auto rest = text.subspan(head_.first_token);
  const auto differ = std::mismatch(tokens_.begin(), tokens_.end(), rest.begin(), rest.end());
  return static_cast<size_t>(differ.first - tokens_.begin()) / kBlockKeys;
}

Status KvRecord::append_to(KvSequence& kv, size_t from, size_t count) const {
  const bool in_place =
      kv.pending() == 0 && !kv.pruned() && !kv.gaps() && kv.length() == head_.first_token + from * kBlockKeys;
  const BlockPoolConfig& config = kv.pool()->config();
  if (!in_place || from > blocks() || count > blocks() - from) {
    return failed_precondition("the KV record's blocks do not follow the sequence");
  }
  if (space_.layers != kv.layers() || space_.kv_heads != kv.kv_heads() ||
      space_.head_dim != config.head_dim || space_.k_type != config.k_type ||
      space_.v_type != config.v_type || space_.key_encoding != config.key_encoding) {
    return differs("another shape");
  }
  // The pool's own codes, or levels that it has.
  const bool fits =
      space_.coded == config.coded ||
      (config.coded.empty() && std::all_of(space_.coded.begin(), space_.coded.end(),
                                           [&](KvFormat format) { return kv.pool()->has_format(format); }));
  if (!fits) return differs("another shape");
  if ((head_.first_token / kBlockKeys + from) % space_.unit() != 0 || count % space_.unit() != 0) {
    return failed_precondition("the KV record's blocks are coded together with others");
  }
  BlockPool& pool = *kv.pool();
  const size_t streams = kv.layers() * kv.kv_heads();
  std::vector<BlockId> ids;
  ISTHMUS_RETURN_IF_ERROR(allocate_blocks(pool, streams, count, ids));
  for (size_t i = 0; i < count; ++i) {
    const auto block = std::span(ids).subspan(i * streams, streams);
    for_each_stream(space_, blocks(), [&](size_t stream, size_t offset, size_t bytes) {
      std::memcpy(pool.k(block[stream]), data_.data() + offset + (from + i) * bytes, bytes);
      BlockHeader& header = pool.header(block[stream]);
      header.exactness = space_.exactness;
      header.computed_by = space_.computed_by;
      header.sealed = true;
    });
    kv.append_shared(block, kBlockKeys);
  }
  for (const BlockId id : ids) pool.release(id);  // the sequence owns them now
  return ok_status();
}

/// `count` blocks for each stream, all or nothing: [count][streams].
Status KvRecord::allocate_blocks(BlockPool& pool, size_t streams, size_t count,
                                 std::vector<BlockId>& out) const {
  if (space_.coded.empty()) return pool.allocate(streams * count, out);
  for (size_t i = 0; i < streams * count; ++i) {
    const auto id = pool.allocate_coded(space_.format(i % streams / space_.kv_heads));
    if (!id.ok()) {
      for (const BlockId taken : out) pool.release(taken);
      return id.status();
    }
    out.push_back(*id);
  }
  return ok_status();
}

}  // namespace isthmus
