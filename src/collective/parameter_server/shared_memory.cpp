// See shared_memory.hpp.
#include "collective/parameter_server/shared_memory.hpp"

#include "cluster/config/job_token.hpp"
#include "cluster/net/frame.hpp"
#include "core/file_system.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <new>
#include <system_error>

namespace lockstep {

SharedMemory::SharedMemory(std::size_t size) : name_(fmt::format("lockstep {:016x}", random_number())) {
  if (size == 0) return;
  file_ = FileDescriptor(memfd_create(name_.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // Without the seal a process that shortens the file would kill those that have mapped it.
  const bool has_size = file_.valid() && ftruncate(file_.number(), static_cast<off_t>(size)) == 0;
  if (!has_size && errno == EFBIG)
    throw_io_error(fmt::format("cannot share {} bytes of memory; raise ulimit -f", size), errno);
  if (!has_size || fcntl(file_.number(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) throw std::bad_alloc();
  map(file_, size);
  if (memory_.empty()) throw std::bad_alloc();
}

SharedMemory::SharedMemory(const std::string& handle, const std::string& host, std::size_t size) {
  BodyReader reader(handle);
  const std::string its_host = reader.text();
  const std::uint64_t process = reader.number();
  const std::uint64_t descriptor = reader.number();
  name_ = reader.text();
  reader.finish();
  if (its_host != host) return;
  // Another container's processes have the same numbers, but no file of this name.
  const std::filesystem::path path = fmt::format("/proc/{}/fd/{}", process, descriptor);
  std::error_code error;
  if (!read_symlink(path, error).string().starts_with("/memfd:" + name_) || error) return;
  const FileDescriptor file(path, O_RDWR);
  struct stat status {};
  if (!file.valid() || fstat(file.number(), &status) != 0 || static_cast<std::size_t>(status.st_size) < size) return;
  if (const int seals = fcntl(file.number(), F_GET_SEALS); seals < 0 || (seals & F_SEAL_SHRINK) == 0) return;
  map(file, size);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : file_(std::move(other.file_)), name_(std::move(other.name_)), memory_(std::exchange(other.memory_, {})) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(name_, other.name_);
  std::swap(memory_, other.memory_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (!memory_.empty()) (void)munmap(memory_.data(), memory_.size());
}

std::string SharedMemory::handle(const std::string& host) const {
  return BodyWriter()
      .text(host)
      .number(static_cast<std::uint64_t>(getpid()))
      .number(static_cast<std::uint64_t>(file_.number()))
      .text(name_)
      .take();
}

void SharedMemory::map(const FileDescriptor& file, std::size_t size) {
  void* const mapping = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.number(), 0);
  if (mapping == MAP_FAILED) return;  // NOLINT(performance-no-int-to-ptr): as POSIX defines it
  memory_ = {static_cast<std::byte*>(mapping), size};
}

}  // namespace lockstep
