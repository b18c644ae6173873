// 32-byte digests (SHA-256) as values, and how layers below the one that computes them get at them.
//
// The function itself lives in store/ (it needs a library); whoever needs digests elsewhere takes a
// DigestFunction, which apps/ passes in. Pure values, any thread.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace isthmus {

using Digest = std::array<std::byte, 32>;

/// The digest of all bytes. kInternal when the library behind it fails.
using DigestFunction = Result<Digest> (*)(std::span<const std::byte> bytes);

/// 64 lower-case hex digits.
std::string hex_of(const Digest& digest);
/// The reverse; nullopt unless `text` is exactly 64 digits of 0-9a-f.
std::optional<Digest> digest_from_hex(std::string_view text);

}  // namespace isthmus
