// What several of the compiled functions need: numbers of either element, and a clock.

#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>

// The number at a place of an array of float32 (element 0) or bfloat16 (element 1).
static inline float number(const void* numbers, int64_t at, int64_t element) {
  if (element == 0) return ((const float*)numbers)[at];
  const uint32_t bits = (uint32_t)((const uint16_t*)numbers)[at] << 16;
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

// Seconds since some moment.
static inline double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
