#pragma once

namespace cephalo {

// Tags of the world's own messages; those of its users are from 0 on.
inline constexpr int kCollectiveTag = -1;
inline constexpr int kRingTag = -2;
inline constexpr int kLowestTag = -2;

}  // namespace cephalo
