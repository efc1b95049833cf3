// Groups of a few tokens in one call, for decode steps: there the router's work is a microsecond, and calling torch six
// times for it takes ten times as long. Plain C interface.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common.h"

namespace {

constexpr int CHAINS = 4;  // independent sums, so that additions need not wait for each other
constexpr int64_t MOST_GROUPS = 63;

// scores[g] += sum_e hidden[e] * weights[e, g]; GROUPS 0 takes any number of groups.
template <int GROUPS>
void add_products(const void* hidden, int64_t first, int64_t element, const float* weights, int64_t width, int64_t groups, float* scores) {
  const int64_t K = GROUPS ? GROUPS : groups;
  float sums[CHAINS][GROUPS ? GROUPS : MOST_GROUPS] = {};
  int64_t e = 0;
  for (; e + CHAINS <= width; e += CHAINS)
    for (int c = 0; c < CHAINS; ++c) {
      const float x = number(hidden, first + e + c, element);
      for (int64_t g = 0; g < K; ++g) sums[c][g] += x * weights[(e + c) * K + g];
    }
  for (; e < width; ++e)
    for (int64_t g = 0; g < K; ++g) sums[0][g] += number(hidden, first + e, element) * weights[e * K + g];
  for (int64_t g = 0; g < K; ++g) scores[g] += (sums[0][g] + sums[1][g]) + (sums[2][g] + sums[3][g]);
}

}  // namespace

// Bits of the top_k largest of `groups` probabilities, of equals the lower group.
extern "C" int64_t focus_top_groups(const float* p, int64_t groups, int64_t top_k) {
  int64_t bits = 0;
  for (int64_t k = 0; k < top_k; ++k) {
    int64_t best = -1;
    for (int64_t g = 0; g < groups; ++g)
      if (!(bits >> g & 1) && (best < 0 || p[g] > p[best])) best = g;
    bits |= (int64_t)1 << best;
  }
  return bits;
}

// hidden (tokens, width), element 0 for float32 and 1 for bfloat16; weights (width, groups); potential (groups). Writes
// probabilities (tokens, groups), their softmax, and membership (tokens), bits of the top_k largest, of equals the lower
// group. All contiguous. Returns 0, or 1 for more groups than a bit set holds.
extern "C" int focus_route_cpu(const void* hidden, const float* weights, const float* potential, float* probabilities, int64_t* membership,
                               int64_t element, int64_t tokens, int64_t width, int64_t groups, int64_t top_k) {
  if (groups > MOST_GROUPS) return 1;
  for (int64_t t = 0; t < tokens; ++t) {
    float* p = probabilities + t * groups;
    std::copy(potential, potential + groups, p);
    auto* add = groups == 4 ? add_products<4> : groups == 8 ? add_products<8> : groups == 16 ? add_products<16> : add_products<0>;
    add(hidden, t * width, element, weights, width, groups, p);
    const float top = *std::max_element(p, p + groups);
    float sum = 0;
    for (int64_t g = 0; g < groups; ++g) sum += p[g] = std::exp(p[g] - top);
    for (int64_t g = 0; g < groups; ++g) p[g] /= sum;
    membership[t] = focus_top_groups(p, groups, top_k);
  }
  return 0;
}
