#include "store/sha256.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <vector>

namespace isthmus {
namespace {

constexpr size_t kHashStep = size_t{1} << 20;

}  // namespace

struct Sha256::Impl {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  bool good = context != nullptr && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1;
  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) {}
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;
Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
  impl_->good = impl_->good && EVP_DigestUpdate(impl_->context, bytes.data(), bytes.size()) == 1;
}

Result<std::string> Sha256::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> raw{};
  unsigned size = 0;
  if (!impl_->good || EVP_DigestFinal_ex(impl_->context, raw.data(), &size) != 1 || size != 32) {
    return internal_error("SHA-256 failed inside OpenSSL");
  }
  impl_->good = false;
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  out.reserve(64);
  for (unsigned i = 0; i < size; ++i) {
    out += kHex[raw[i] >> 4];
    out += kHex[raw[i] & 15];
  }
  return out;
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string sha256_of(std::string_view text) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  Result<std::string> digest = hash.finish();
  return digest.ok() ? *digest : std::string();
}

Result<Digest> sha256_digest(std::span<const std::byte> bytes) {
  Digest out{};
  unsigned size = 0;
  const int good = EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(out.data()), &size,
                              EVP_sha256(), nullptr);
  if (good != 1 || size != out.size()) return internal_error("SHA-256 failed inside OpenSSL");
  return out;
}

Status hash_bytes(FolderFile& file, uint64_t bytes, Sha256& hash, const StopPolicy& stop,
                  const std::function<void(uint64_t)>& progress) {
  std::vector<std::byte> buffer(kHashStep);
  while (bytes > 0) {
    ISTHMUS_RETURN_IF_ERROR(stop.check());
    const auto want = static_cast<size_t>(std::min<uint64_t>(bytes, buffer.size()));
    ISTHMUS_ASSIGN_OR_RETURN(const size_t got, file.read(std::span(buffer).first(want)));
    if (got == 0) return corrupt("the file ended while it was read");
    hash.update(std::span(buffer).first(got));
    bytes -= got;
    if (progress) progress(got);
  }
  return ok_status();
}

}  // namespace isthmus
