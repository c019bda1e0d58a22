#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)
namespace cephalo {

// Kinds of memory. Only the host's exists in every build.
enum class DeviceKind : std::uint8_t { host, cuda };
inline constexpr int kDeviceKinds = 2;
const char* name(DeviceKind kind);  // "cuda"

// Where a tensor's elements lie: two bytes of every view.
struct Device {
  DeviceKind kind = DeviceKind::host;
  std::uint8_t index = 0;  // which one of its kind

  bool is_host() const { return kind == DeviceKind::host; }
  bool operator==(const Device&) const = default;
};
static_assert(sizeof(Device) == 2);

std::string to_string(Device device);  // "host", "cuda:1"

// The inverse; "cuda" is cuda:0. Anything else is an error that says what there is.
Device parse_device(std::string_view text);

}  // namespace cephalo
#pragma GCC visibility pop
