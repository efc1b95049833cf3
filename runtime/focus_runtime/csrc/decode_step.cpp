// One decode step of a layer in one call: the new token's groups, whether it is a sink, and attention to what it sees.
// Each part is a few microseconds; calling torch for them one by one takes ten times as long. Plain C interface.

#include <cmath>
#include <cstdint>

#include "common.h"

extern "C" struct FocusProblem;  // fused.cpp
extern "C" int focus_step_cpu(FocusProblem*);
extern "C" int focus_route_cpu(const void*, const float*, const float*, float*, int64_t*, int64_t, int64_t, int64_t, int64_t, int64_t);  // few_tokens.cpp
extern "C" int64_t focus_top_groups(const float*, int64_t, int64_t);

extern "C" struct DecodeStep {  // must match `_STEP` in decode.py
  const void* hidden;           // (width), the layer's input
  const float* weights;         // (width, groups)
  const float* potential;       // (groups)
  const void* first_input;      // (width), the layer's input at the text's first token; null where no sinks are looked for
  float* probabilities;         // out: (groups)
  int64_t* membership;          // (settings, plane_stride), of which the column `place` is written
  const int64_t* top_ks;        // (settings)
  int64_t element;              // of both inputs, 0: float32, 1: bfloat16
  int64_t width, groups, top_k, settings, plane_stride, place;
  double threshold;  // cosine similarity from which the token is a sink
  int64_t sink;      // in: found by an earlier layer; out: by this one or an earlier one
  int64_t bits;      // out: groups at top_k
  double seconds;    // out: spent on all but attention
};

namespace {

double cosine_similarity(const void* a, const void* b, int64_t element, int64_t width) {
  double product = 0, left = 0, right = 0;
  for (int64_t e = 0; e < width; ++e) {
    const double x = number(a, e, element), y = number(b, e, element);
    product += x * y, left += x * x, right += y * y;
  }
  return product / std::sqrt(std::fmax(left * right, 1e-16));
}

}  // namespace

// Returns 0, or 1 for more groups than a bit set holds or where memory ran out.
extern "C" int focus_decode_cpu(DecodeStep* s, FocusProblem* problem) {
  const double start = now();
  if (focus_route_cpu(s->hidden, s->weights, s->potential, s->probabilities, &s->bits, s->element, 1, s->width, s->groups, s->top_k)) return 1;
  if (!s->sink && s->first_input) s->sink = cosine_similarity(s->hidden, s->first_input, s->element, s->width) >= s->threshold;
  const int64_t everywhere = s->sink ? ((int64_t)1 << s->groups) - 1 : 0;
  for (int64_t i = 0; i < s->settings; ++i) {
    const int64_t own = s->top_ks[i] == s->top_k ? s->bits : focus_top_groups(s->probabilities, s->groups, s->top_ks[i]);
    s->membership[i * s->plane_stride + s->place] = s->top_ks[i] ? own | everywhere : 0;  // without groups none is everywhere
  }
  s->bits |= everywhere;
  s->seconds = now() - start;
  return focus_step_cpu(problem);
}
