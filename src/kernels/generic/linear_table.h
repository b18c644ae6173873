// Builds one instruction set's LinearKernels from its policy class V (linear_dot.h). Split by format so that
// a set can spread its instantiations over several files and the build runs in parallel.
#pragma once

#include "kernels/generic/linear_dot.h"
#include "kernels/generic/linear_peak.h"

namespace isthmus {
namespace {

template <class V, PanelLayout L, Compute C, int N>
constexpr DotKernel dot_kernel() {
  if constexpr (N > V::kTokensAtOnce) {
    return dot_units_in_parts<V, L, C, N>;
  } else {
    return dot_units<V, L, C, N>;
  }
}

template <class V, PanelLayout L, Compute C>
constexpr void fill_dots(DotKernel (&row)[kTokenCounts]) {
  row[0] = dot_kernel<V, L, C, 1>();
  row[1] = dot_kernel<V, L, C, 2>();
  row[2] = dot_kernel<V, L, C, 3>();
  row[3] = dot_kernel<V, L, C, 4>();
  row[4] = dot_kernel<V, L, C, static_cast<int>(kMaxTokens)>();
}

template <class V, PackFormat F>
constexpr void fill_format(LinearKernels& table) {
  constexpr PanelLayout kPacked = panel_layout(F);
  constexpr PanelLayout kUnpacked = unpacked_layout(kPacked);
  constexpr auto kIndex = static_cast<size_t>(F);
  constexpr auto kInt8 = static_cast<size_t>(Compute::kInt8);
  constexpr auto kInt16 = static_cast<size_t>(Compute::kInt16);
  fill_dots<V, kPacked, Compute::kInt8>(table.dot[kIndex][kInt8]);
  fill_dots<V, kPacked, Compute::kInt16>(table.dot[kIndex][kInt16]);
  fill_dots<V, kUnpacked, Compute::kInt8>(table.dot_unpacked[kIndex][kInt8]);
  fill_dots<V, kUnpacked, Compute::kInt16>(table.dot_unpacked[kIndex][kInt16]);
  table.unpack[kIndex] = unpack_units<V, kPacked>;
  if constexpr (V::kWidePanels > 0) {
    table.dot_wide[kIndex][kInt8] = dot_wide<V, kUnpacked, Compute::kInt8>;
    table.dot_wide[kIndex][kInt16] = dot_wide<V, kUnpacked, Compute::kInt16>;
  }
}

template <class V, PackFormat F>
constexpr void fill_plain(LinearKernels& table) {
  auto& row = table.dot_float[static_cast<size_t>(F) - kQuantFormats];
  row[0] = dot_plain<V, F, 1>;
  row[1] = dot_plain<V, F, 2>;
  row[2] = dot_plain<V, F, 3>;
  row[3] = dot_plain<V, F, 4>;
  row[4] = dot_plain<V, F, static_cast<int>(kMaxTokens)>;
}

template <class V, Compute C>
constexpr void fill_quantize(LinearKernels& table) {
  table.record_bytes[static_cast<size_t>(C)] = RecordOf<V, C>::kSize;
  table.quantize[static_cast<size_t>(C)] = quantize_row<V, RecordOf<V, C>>;
}

/// Formats without a scale hierarchy.
template <class V>
constexpr void fill_simple_formats(LinearKernels& table) {
  fill_format<V, PackFormat::kQ4_0>(table);
  fill_format<V, PackFormat::kQ4_1>(table);
  fill_format<V, PackFormat::kQ5_0>(table);
  fill_format<V, PackFormat::kQ5_1>(table);
  fill_format<V, PackFormat::kQ8_0>(table);
  fill_format<V, PackFormat::kIQ4_NL>(table);
  fill_format<V, PackFormat::kMXFP4>(table);
}

/// Formats in super-blocks of 256 columns.
template <class V>
constexpr void fill_super_formats(LinearKernels& table) {
  fill_format<V, PackFormat::kQ2_K>(table);
  fill_format<V, PackFormat::kQ3_K>(table);
  fill_format<V, PackFormat::kQ4_K>(table);
  fill_format<V, PackFormat::kQ5_K>(table);
  fill_format<V, PackFormat::kQ6_K>(table);
  fill_format<V, PackFormat::kIQ4_XS>(table);
}

template <class V>
constexpr void fill_rest(LinearKernels& table) {
  table.wide_panels = static_cast<size_t>(V::kWidePanels);
  table.strip_tokens = kMaxTokens;
  table.store = store_tile<V>;
  table.peak[static_cast<size_t>(Compute::kInt8)] = peak_integer<V, Compute::kInt8>;
  table.peak[static_cast<size_t>(Compute::kInt16)] = peak_integer<V, Compute::kInt16>;
  table.peak[static_cast<size_t>(Compute::kF32)] = peak_float<V>;
  fill_plain<V, PackFormat::kF32>(table);
  fill_plain<V, PackFormat::kF16>(table);
  fill_plain<V, PackFormat::kBF16>(table);
  fill_quantize<V, Compute::kInt8>(table);
  fill_quantize<V, Compute::kInt16>(table);
}

}  // namespace
}  // namespace isthmus
