#include "os/file_sim.h"

#include <fmt/format.h>

#include <cerrno>

namespace isthmus {

struct SimFileSystem::Inode {
  std::string data;     // what a reader sees now
  std::string durable;  // what a power cut leaves
};

class SimFile final : public WritableFile {
 public:
  SimFile(SimFileSystem& files, std::shared_ptr<SimFileSystem::Inode> inode, std::string path)
      : files_(files), inode_(std::move(inode)), path_(std::move(path)) {}

  Status append(std::span<const std::byte> bytes) override {
    const std::lock_guard lock(files_.mutex_);
    auto status = files_.step("write", path_);
    const size_t n = status.ok() ? bytes.size() : bytes.size() / 2;
    inode_->data.append(reinterpret_cast<const char*>(bytes.data()), n);
    return status;
  }

  Status sync() override {
    const std::lock_guard lock(files_.mutex_);
    ISTHMUS_RETURN_IF_ERROR(files_.step("sync", path_));
    inode_->durable = inode_->data;
    return ok_status();
  }

  Status close() override {
    const std::lock_guard lock(files_.mutex_);
    return files_.step("close", path_);
  }

 private:
  SimFileSystem& files_;
  std::shared_ptr<SimFileSystem::Inode> inode_;
  std::string path_;
};

SimFileSystem::SimFileSystem() = default;
SimFileSystem::~SimFileSystem() = default;

Status SimFileSystem::step(std::string_view action, const std::string& path) {
  if (operations_++ >= fail_from_) return file_error(fail_errno_, action, path);
  return ok_status();
}

Result<std::unique_ptr<WritableFile>> SimFileSystem::create(const std::string& path) {
  const std::lock_guard lock(mutex_);
  ISTHMUS_RETURN_IF_ERROR(step("create", path));
  const auto [at, fresh] = live_.try_emplace(path, std::make_shared<Inode>());
  if (!fresh) return file_error(EEXIST, "create", path);
  return std::unique_ptr<WritableFile>(std::make_unique<SimFile>(*this, at->second, path));
}

Status SimFileSystem::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  ISTHMUS_RETURN_IF_ERROR(step("rename to", to));
  const auto at = live_.find(from);
  if (at == live_.end()) return file_error(ENOENT, "rename", from);
  const auto inode = at->second;
  live_.erase(at);
  live_[to] = inode;
  return ok_status();
}

Status SimFileSystem::remove(const std::string& path) {
  const std::lock_guard lock(mutex_);
  ISTHMUS_RETURN_IF_ERROR(step("remove", path));
  if (live_.erase(path) == 0) return file_error(ENOENT, "remove", path);
  return ok_status();
}

Status SimFileSystem::sync_directory(const std::string& path) {
  const std::lock_guard lock(mutex_);
  ISTHMUS_RETURN_IF_ERROR(step("sync directory", path));
  const auto in_directory = [&](const auto& entry) { return directory_of(entry.first) == path; };
  std::erase_if(durable_, in_directory);
  for (const auto& entry : live_) {
    if (in_directory(entry)) durable_.insert(entry);
  }
  return ok_status();
}

Result<std::string> SimFileSystem::read(const std::string& path, size_t limit) {
  const std::lock_guard lock(mutex_);
  ISTHMUS_RETURN_IF_ERROR(step("open", path));
  const auto at = live_.find(path);
  if (at == live_.end()) return file_error(ENOENT, "open", path);
  if (at->second->data.size() > limit) {
    return resource_exhausted(fmt::format("'{}' has more than the {} bytes allowed here", path, limit));
  }
  return at->second->data;
}

bool SimFileSystem::exists(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return live_.contains(path);
}

void SimFileSystem::fail_at(uint64_t n, int err) {
  const std::lock_guard lock(mutex_);
  fail_from_ = operations_ + n;
  fail_errno_ = err;
}

void SimFileSystem::heal() {
  const std::lock_guard lock(mutex_);
  fail_from_ = UINT64_MAX;
}

uint64_t SimFileSystem::operations() const {
  const std::lock_guard lock(mutex_);
  return operations_;
}

void SimFileSystem::crash(Crash mode) {
  const std::lock_guard lock(mutex_);
  if (mode == Crash::kLoseUnsyncedNames) live_ = durable_;
  for (const auto& [name, inode] : live_) inode->data = inode->durable;
  durable_ = live_;
  fail_from_ = UINT64_MAX;
}

std::vector<std::string> SimFileSystem::names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const auto& entry : live_) out.push_back(entry.first);
  return out;
}

}  // namespace isthmus
