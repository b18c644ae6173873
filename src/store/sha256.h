// SHA-256 (FIPS 180-4) through OpenSSL, which uses the CPU's SHA instructions.
//
// One Sha256 belongs to one thread. A digest is written as 64 lower-case hex digits everywhere in Isthmus.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/cancel.h"
#include "base/digest.h"
#include "base/status.h"
#include "os/paths_folder.h"

namespace isthmus {

class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  ~Sha256();

  void update(std::span<const std::byte> bytes);
  /// The digest of everything so far; the object is then used up. kInternal when OpenSSL failed on the way.
  Result<std::string> finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Exactly 64 digits of 0-9a-f.
bool is_sha256(std::string_view text);

/// Digest of a short text.
std::string sha256_of(std::string_view text);

/// The digest as bytes: a DigestFunction.
Result<Digest> sha256_digest(std::span<const std::byte> bytes);

/// Feeds the next `bytes` bytes of `file`, from its current position, to `hash`; kCorrupt when it ends early.
/// `progress` (may be empty) gets the number of bytes of each step.
Status hash_bytes(FolderFile& file, uint64_t bytes, Sha256& hash, const StopPolicy& stop,
                  const std::function<void(uint64_t)>& progress);

}  // namespace isthmus
