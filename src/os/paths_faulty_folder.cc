#include "os/paths_faulty_folder.h"

#include <algorithm>
#include <utility>

namespace isthmus {
namespace {

class FaultyFile : public FolderFile {
 public:
  FaultyFile(std::unique_ptr<FolderFile> real, std::shared_ptr<FaultPlan> plan)
      : real_(std::move(real)), plan_(std::move(plan)) {}

  Status write(std::span<const std::byte> bytes) override {
    if (plan_->steps >= plan_->fail_from) static_cast<void>(real_->write(bytes.first(bytes.size() / 2)));
    ISTHMUS_RETURN_IF_ERROR(plan_->step());
    const auto fits = static_cast<size_t>(std::min<uint64_t>(bytes.size(), plan_->disk_bytes));
    ISTHMUS_RETURN_IF_ERROR(real_->write(bytes.first(fits)));
    plan_->disk_bytes -= fits;
    if (fits < bytes.size()) return resource_exhausted("injected: no space left on device");
    return ok_status();
  }
  Result<size_t> read(std::span<std::byte> bytes) override { return real_->read(bytes); }
  Status seek(uint64_t offset) override { return real_->seek(offset); }
  Status truncate(uint64_t size) override {
    ISTHMUS_RETURN_IF_ERROR(plan_->step());
    return real_->truncate(size);
  }
  Status sync() override {
    ISTHMUS_RETURN_IF_ERROR(plan_->step());
    if (plan_->fail_file_sync) return io_error("injected: fsync of a file failed");
    return real_->sync();
  }
  Result<FileInfo> info() const override { return real_->info(); }

 private:
  std::unique_ptr<FolderFile> real_;
  std::shared_ptr<FaultPlan> plan_;
};

class FaultyFolder : public Folder {
 public:
  FaultyFolder(std::shared_ptr<Folder> real, std::shared_ptr<FaultPlan> plan)
      : real_(std::move(real)), plan_(std::move(plan)) {}

  const std::string& path() const override { return real_->path(); }
  int descriptor() const override { return real_->descriptor(); }

  Result<std::unique_ptr<FolderFile>> open_file(const std::string& name, OpenMode mode) override {
    if (mode != OpenMode::kRead) ISTHMUS_RETURN_IF_ERROR(plan_->step());
    ISTHMUS_ASSIGN_OR_RETURN(auto file, real_->open_file(name, mode));
    return std::unique_ptr<FolderFile>(std::make_unique<FaultyFile>(std::move(file), plan_));
  }
  Result<std::shared_ptr<Folder>> subfolder(const std::string& name) override {
    ISTHMUS_ASSIGN_OR_RETURN(auto inner, real_->subfolder(name));
    return faulty_folder(std::move(inner), plan_);
  }
  Result<FileInfo> info(const std::string& name) override { return real_->info(name); }
  Result<std::vector<std::string>> list() override { return real_->list(); }
  Status rename(const std::string& name, Folder& target, const std::string& new_name) override {
    ISTHMUS_RETURN_IF_ERROR(plan_->step());
    if (plan_->fail_rename) return io_error("injected: rename failed");
    return real_->rename(name, target, new_name);
  }
  Status remove(const std::string& name) override {
    ISTHMUS_RETURN_IF_ERROR(plan_->step());
    return real_->remove(name);
  }
  Status remove_tree(const std::string& name) override {
    ISTHMUS_RETURN_IF_ERROR(plan_->step());
    return real_->remove_tree(name);
  }
  Status make_read_only(const std::string& name) override { return real_->make_read_only(name); }
  Status sync() override {
    ISTHMUS_RETURN_IF_ERROR(plan_->step());
    if (plan_->fail_folder_sync) return io_error("injected: fsync of a folder failed");
    return real_->sync();
  }
  Result<uint64_t> free_bytes() override {
    ISTHMUS_ASSIGN_OR_RETURN(const uint64_t real, real_->free_bytes());
    return std::min(real, plan_->reported_free);
  }
  Result<FolderLock> lock(const std::string& name, const StopPolicy& stop,
                          const std::function<void()>& on_wait) override {
    return real_->lock(name, stop, on_wait);
  }
  Result<FolderLock> try_lock(const std::string& name) override { return real_->try_lock(name); }

 private:
  std::shared_ptr<Folder> real_;
  std::shared_ptr<FaultPlan> plan_;
};

}  // namespace

Status FaultPlan::step() {
  if (steps++ < fail_from) return ok_status();
  if (on_failure) on_failure();
  return io_error("injected: the disk is gone");
}

std::shared_ptr<Folder> faulty_folder(std::shared_ptr<Folder> real, std::shared_ptr<FaultPlan> plan) {
  return std::make_shared<FaultyFolder>(std::move(real), std::move(plan));
}

}  // namespace isthmus
