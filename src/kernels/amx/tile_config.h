// The shapes of the eight tile registers, as LDTILECFG reads them (Intel SDM vol. 1, ch. 18): palette 1 has
// registers of at most 16 rows of 64 bytes.
//
// Compile-time data and plain structures: no errors, any thread. Internal linkage, for the reason that
// kernels/CMakeLists.txt gives.
#pragma once

#include <cstddef>
#include <cstdint>

namespace isthmus {
namespace {

constexpr size_t kTiles = 8;
constexpr size_t kTileRows = 16;
constexpr size_t kTileRowBytes = 64;
constexpr size_t kTileBytes = kTileRows * kTileRowBytes;

struct alignas(64) TileConfig {
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);

struct TileShape {
  uint8_t rows;
  uint16_t row_bytes;
};

constexpr TileConfig tile_config(const TileShape (&shapes)[kTiles]) {
  TileConfig config{};
  config.palette = 1;
  for (size_t i = 0; i < kTiles; ++i) {
    config.row_bytes[i] = shapes[i].row_bytes;
    config.rows[i] = shapes[i].rows;
  }
  return config;
}

}  // namespace
}  // namespace isthmus
