// A place below memory that keeps records (base/stored_record.h) and finds them by the keys of their parts:
// what the engine knows of the flash tier.
//
// An implementation may lose records, never change one: read() returns a record that was checked to its last
// byte and that holds the key asked for. What the record means is the caller's business; one that does not
// fit after all is handed back by refuse(). Safe from any thread. Errors are misses to the caller: kNotFound
// (not there), kCorrupt (damaged, and dropped), kUnavailable, kIo; of write() also kFailedPrecondition (the
// tier takes nothing any more, and says why) and kResourceExhausted (no space).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "base/status.h"

namespace isthmus {

class RecordTier {
 public:
  virtual ~RecordTier() = default;
  /// For figures: "flash".
  virtual std::string_view name() const = 0;
  /// Whether a record with this key is known. It may be gone when it is read.
  virtual bool holds(const Digest& key) = 0;
  /// The whole record that has `key` among its keys.
  virtual Result<std::vector<std::byte>> read(const Digest& key) = 0;
  /// Keeps a record; one that is there already is left as it is.
  virtual Status write(std::span<const std::byte> record) = 0;
  /// The record that read() gave for `key` is of no use to anybody: it is dropped and counted.
  virtual void refuse(const Digest& key) = 0;
  /// Nobody needs the record with this key any more.
  virtual void forget(const Digest& key) = 0;
};

}  // namespace isthmus
