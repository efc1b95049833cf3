// Exact Focus attention on the CPU in one fused pass per query tile. Plain C interface, no library but the standard one.
//
// A tile holds QUERIES queries in the vector lanes: scores are computed transposed (keys x queries), so the running
// maximum, the mask and the sums are vertical operations, keys and values are read as rows by index, and nothing is
// sorted, gathered or padded in memory. Every tile walks a list of keys and keeps the usual online softmax
// (maximum m, sum l, weighted values acc). Three rules say which keys of the list count:
//
//   CAUSAL  key position <= query position. The list holds only keys that share a group with every query of the tile.
//   LOCAL   no shared group, and near or a sink. Queries of a tile are neighbours in the text.
//   DENSE   shared group, near or sink. The list is the whole text.
//
// "By class" runs LOCAL over the text, then CAUSAL per class of tokens with the same groups, starting from what LOCAL
// left; the two sets are disjoint and cover the mask, for any number of groups a token. "Dense" runs one pass.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common.h"

#if defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__linux__)
#define MATRIX_TILES 1
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__AVX512F__)
constexpr int LANES = 16, ROWS = 8;
#elif defined(__AVX__)
constexpr int LANES = 8, ROWS = 4;
#else
constexpr int LANES = 4, ROWS = 4;
#endif
constexpr int BLOCK = 64;    // keys per step: scores, keys and values of a step stay in the first-level cache
constexpr int VECTORS = 2;   // vectors of queries in a tile
constexpr int SUBTILES = 32;  // tiles that share a block of keys, at most

typedef float vf __attribute__((vector_size(LANES * 4)));
typedef int32_t vi __attribute__((vector_size(LANES * 4)));
typedef uint32_t vu __attribute__((vector_size(LANES * 4)));
typedef float vf_mem __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t vi_mem __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

static inline vf load(const float* p) { return *(const vf_mem*)p; }
static inline void store(float* p, vf x) { *(vf_mem*)p = x; }
static inline vi load(const int32_t* p) { return *(const vi_mem*)p; }
static inline vf all(float x) { return x - vf{}; }
static inline vi all(int32_t x) { return x - vi{}; }
static inline vf pick(vi mask, vf yes, vf no) { return (vf)(((vi)yes & mask) | ((vi)no & ~mask)); }
static inline vf larger(vf a, vf b) { return a > b ? a : b; }

constexpr float NONE = -std::numeric_limits<float>::infinity();

// e^x for x <= about 88, relative error about 1e-7; x below -87 gives about 1e-38, never a denormal.
static inline vf exponential(vf x) {
  const float rounder = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low mantissa bits
  vf t = x * 1.44269504088896341f;
  t = t < -126.0f ? all(-126.0f) : t;  // in this order NaN stays NaN
  vf z = t + rounder;
  vf f = (t - (z - rounder)) * 0.693147180559945309f;
  vf p = f * 1.38888889e-3f + 8.33333333e-3f;
  p = p * f + 4.16666667e-2f;
  p = p * f + 1.66666667e-1f;
  p = p * f + 0.5f;
  p = p * f + 1.0f;
  p = p * f + 1.0f;
  return (vf)((vi)p + ((vi)z << 23));
}

static inline vf capped(vf x, float cap) {  // cap * tanh(x / cap)
  x = x > 20.0f * cap ? all(20.0f * cap) : x;  // tanh is 1 there; in this order NaN stays NaN
  x = x < -20.0f * cap ? all(-20.0f * cap) : x;
  const vf e = exponential(x * (-2.0f / cap));
  return cap * ((1.0f - e) / (1.0f + e));
}

// Lanes of the first row after rows i and i + GAP have swapped a half of every 2 * GAP lanes, or else of the second. The
// numbers are template arguments: given at run time, clang permutes lane by lane through memory.
template <int GAP, bool FIRST, size_t... LANE>
static inline vf swapped(vf a, vf b, std::index_sequence<LANE...>) {
#if defined(__clang__)
  return __builtin_shufflevector(
      a, b, (FIRST ? (LANE & GAP ? LANES + LANE - GAP : LANE) : (LANE & GAP ? LANES + LANE : LANE + GAP))...);
#else
  return __builtin_shuffle(
      a, b, vi{int32_t(FIRST ? (LANE & GAP ? LANES + LANE - GAP : LANE) : (LANE & GAP ? LANES + LANE : LANE + GAP))...});
#endif
}

template <int GAP>
static inline void swap_halves(vf* row) {
  if constexpr (GAP < LANES) {
    const std::make_index_sequence<LANES> lanes;
#pragma GCC unroll 16
    for (int i = 0; i < LANES; ++i) {
      if (i & GAP) continue;
      const vf a = row[i], b = row[i + GAP];
      row[i] = swapped<GAP, true>(a, b, lanes);
      row[i + GAP] = swapped<GAP, false>(a, b, lanes);
    }
  }
}

// Transposes LANES x LANES numbers in registers, stage by stage.
static inline void transpose(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  vf row[LANES];
#pragma GCC unroll 16
  for (int i = 0; i < LANES; ++i) row[i] = load(from + i * from_stride);
  swap_halves<1>(row);
  swap_halves<2>(row);
  swap_halves<4>(row);
  swap_halves<8>(row);
#pragma GCC unroll 16
  for (int i = 0; i < LANES; ++i) store(to + i * to_stride, row[i]);
}

// (rows, columns) -> (columns, rows); rows a multiple of LANES, columns any.
static inline void transpose(const float* from, int64_t rows, int64_t columns, float* to) {
  for (int64_t r = 0; r < rows; r += LANES) {
    int64_t c = 0;
    for (; c + LANES <= columns; c += LANES) transpose(from + r * columns + c, columns, to + c * rows + r, rows);
    for (; c < columns; ++c)
      for (int64_t i = r; i < r + LANES; ++i) to[c * rows + i] = from[i * columns + c];
  }
}

// The way back: (columns, rows) -> (rows, columns).
static inline void transpose_back(const float* from, int64_t rows, int64_t columns, float* to) {
  for (int64_t r = 0; r < rows; r += LANES) {
    int64_t c = 0;
    for (; c + LANES <= columns; c += LANES) transpose(from + c * rows + r, rows, to + r * columns + c, columns);
    for (; c < columns; ++c)
      for (int64_t i = r; i < r + LANES; ++i) to[i * columns + c] = from[c * rows + i];
  }
}

enum Rule { CAUSAL, LOCAL, DENSE };

extern "C" struct FocusProblem {  // must match `_PROBLEM` in fused.py
  const void *query, *key, *value;
  void* out;                  // (B, Tq, Hq, D), contiguous, of the queries' element
  float* lse;                 // (B, Hq, Tq), contiguous
  const int64_t* membership;  // (P, B, Tk), strides below
  const uint8_t* real;        // (B, Tk), or null
  int64_t query_stride[3], key_stride[3], value_stride[3];  // batch, head, token, in elements; the head size is contiguous
  int64_t batch, query_heads, key_heads, query_length, key_length, head_size, window, num_sinks;
  int64_t reach;  // keys as far back as this, and farther, are never seen: a layer's own sliding window
  int64_t grow_first, grow_last;  // positions from which to which windows grow, see rule.py; equal where they do not
  float scale, softcap;  // softcap 0: none
  double local_cost, dense_cost, copy_cost;  // constants of the choice, see costs.py
  int32_t element;       // 0: float32, 1: bfloat16
  int32_t mode;          // 0: choose, 1: by class, 2: dense
  int32_t threads;
  int32_t matrix_tiles;  // 1: multiply bfloat16 in the processor's matrix tiles where it has them
  // GOMP_parallel of the OpenMP library torch has loaded, or null. Its workers spin for a while after each of torch's own
  // operations; threads of ours would share their cores with that.
  void (*parallel)(void (*)(void*), void*, unsigned, unsigned);
  // Heads may differ: the setting of each key head or query head, as many as `told_apart` says, and of each setting its
  // plane of the membership and window; null where one setting, with the window above, is that of all. Outside steps a
  // head whose setting is negative is left out, and its output as it is.
  const int64_t *head_setting, *setting_plane, *setting_window;
  int64_t told_apart, settings;
  int64_t plane_stride, batch_stride;  // strides of the membership, in elements; tokens lie side by side
  double seconds[3];  // out: planning, local pass, pass over groups or the whole text
};

namespace {

// How far back a query sees every key, whatever the groups.
inline int64_t near_of(const FocusProblem& p, int64_t window, int64_t position) {
  return std::min(window * std::min(std::max(position, p.grow_first), p.grow_last) / p.grow_first, p.reach - 1);
}

struct List {  // keys, ascending, and the queries that walk them
  std::vector<int32_t> keys, queries;
};

// What all tiles of one setting read. Tokens are numbered (B, Tk).
struct Work {
  const FocusProblem* p;             // with the setting's own window
  const int32_t* position;           // counted from the first real token
  const int32_t *low, *high;         // the two halves of the setting's membership
  const int64_t* first_real;         // (B)
  float* partial = nullptr;          // (B, Tq, slots, D), what the local pass leaves for the pass over groups, in fp32
  int64_t slots = 0;                 // heads of which it has room

  float* partial_row(int64_t b, int64_t slot, int64_t row) const {
    return partial + ((b * p->query_length + row) * slots + slot) * p->head_size;
  }
};

struct Head {
  int64_t number, slot;  // of the query head, and where its partial results are
};

// Rounded to the nearest, halves to even.
inline uint16_t narrow(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return x != x ? 0x7FC0 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

inline void read_row(const FocusProblem& p, const void* base, int64_t offset, float* to) {
  const int64_t size = p.head_size;
  if (p.element == 0) {
    std::memcpy(to, (const float*)base + offset, size * sizeof(float));
  } else {
    const uint16_t* from = (const uint16_t*)base + offset;
    for (int64_t d = 0; d < size; ++d) {
      uint32_t bits = (uint32_t)from[d] << 16;
      std::memcpy(to + d, &bits, 4);
    }
  }
}

// Rows of one head lie a whole token apart, each in a page of its own: without this the copy waits for every page.
inline void prefetch_row(const FocusProblem& p, const void* base, int64_t offset) {
  const int64_t width = p.element == 0 ? 4 : 2;
  const char* from = (const char*)base + offset * width;
  for (int64_t byte = 0; byte < p.head_size * width; byte += 64) __builtin_prefetch(from + byte, 0, 3);
}

inline void prefetch_pair(const FocusProblem& p, int64_t b, int64_t h, int64_t token) {
  const int64_t kv = h / (p.query_heads / p.key_heads);
  prefetch_row(p, p.key, b * p.key_stride[0] + kv * p.key_stride[1] + token * p.key_stride[2]);
  prefetch_row(p, p.value, b * p.value_stride[0] + kv * p.value_stride[1] + token * p.value_stride[2]);
}

struct Scratch {  // one thread's working memory, aligned to cache lines
  float *keys, *values, *scores, *weights, *rows, *tiles;
  int64_t size;  // the head size, padded as the engine needs it
  std::vector<float> memory;
  explicit Scratch(int64_t padded_size) : size(padded_size) {
    const int64_t queries = LANES * VECTORS, padded = BLOCK + ROWS;  // ROWS more: the last keys are multiplied in full rows
    memory.resize(2 * padded * size + 2 * BLOCK * queries + (SUBTILES * 2 + 1) * size * queries + 16);
    keys = (float*)(((uintptr_t)memory.data() + 63) & ~(uintptr_t)63);
    values = keys + padded * size;
    scores = values + padded * size;
    weights = scores + BLOCK * queries;
    tiles = weights + BLOCK * queries;
    rows = tiles + SUBTILES * 2 * size * queries;
  }
};

template <int VECS>
struct Tile {
  static constexpr int QUERIES = LANES * VECS;
  float *query, *acc;  // (D, QUERIES)
  vf m[VECS], l[VECS];
  int32_t position[QUERIES], near[QUERIES], low[QUERIES], high[QUERIES], token[QUERIES];  // near: keys, the query's own too
  int count, first_position, last_position;
  int64_t begin, end;  // range of the key list
};

template <class Engine>
void load_tile(const Work& w, int64_t b, Head head, const int32_t* tokens, int count, bool resume, Scratch& s,
               Tile<Engine::VECS>& t) {
  const FocusProblem& p = *w.p;
  constexpr int VECS = Engine::VECS, Q = Tile<VECS>::QUERIES;
  float* rows = s.rows;
  const int64_t size = p.head_size, first = p.key_length - p.query_length;
  t.count = count;
  for (int v = 0; v < VECS; ++v) t.m[v] = all(NONE), t.l[v] = vf{};
  if (!resume) std::memset(t.acc, 0, sizeof(float) * size * Q);
  const int64_t h = head.number, query_base = b * p.query_stride[0] + h * p.query_stride[1];
  for (int q = 0; q < count; ++q) {
    prefetch_row(p, p.query, query_base + (tokens[q] - first) * p.query_stride[2]);
    if (resume)
      for (int64_t d = 0; d < size; d += LANES) __builtin_prefetch(w.partial_row(b, head.slot, tokens[q] - first) + d, 0, 3);
  }
  for (int q = 0; q < Q; ++q) {
    const int32_t token = tokens[std::min(q, count - 1)];
    t.token[q] = token;
    t.position[q] = w.position[b * p.key_length + token];
    t.near[q] = (int32_t)near_of(p, p.window, t.position[q]) + 1;
    t.low[q] = w.low[b * p.key_length + token];
    t.high[q] = w.high[b * p.key_length + token];
    Engine::read_query(p, query_base + (token - first) * p.query_stride[2], q, s);
    if (resume) {
      const float lse = p.lse[(b * p.query_heads + h) * p.query_length + token - first];
      ((float*)&t.m[q / LANES])[q % LANES] = lse;
      ((float*)&t.l[q / LANES])[q % LANES] = lse == NONE ? 0.0f : 1.0f;
    }
  }
  Engine::pack_queries(s, t.query);
  if (resume) {
    for (int q = 0; q < Q; ++q)
      std::memcpy(rows + q * size, w.partial_row(b, head.slot, t.token[q] - first), size * sizeof(float));
    transpose(rows, Q, size, t.acc);
  }
  t.first_position = *std::min_element(t.position, t.position + count);
  t.last_position = *std::max_element(t.position, t.position + count);
}

template <int VECS, Rule RULE>
void save_tile(const Work& w, int64_t b, Head head, float* rows, const Tile<VECS>& t) {
  const FocusProblem& p = *w.p;
  constexpr int Q = Tile<VECS>::QUERIES;
  const int64_t h = head.number, size = p.head_size, first = p.key_length - p.query_length;
  transpose_back(t.acc, Q, size, rows);
  for (int q = 0; q < t.count; ++q) {
    const float l = t.l[q / LANES][q % LANES], m = t.m[q / LANES][q % LANES];
    const int64_t row = t.token[q] - first;
    const float inverse = l != 0.0f ? 1.0f / l : 0.0f;
    const int64_t place = ((b * p.query_length + row) * p.query_heads + h) * size;
    if (RULE == LOCAL || p.element == 0) {  // in fp32 the output holds what the local pass leaves
      float* out = RULE == LOCAL ? w.partial_row(b, head.slot, row) : (float*)p.out + place;
      for (int64_t d = 0; d < size; ++d) out[d] = rows[q * size + d] * inverse;
    } else {
      uint16_t* out = (uint16_t*)p.out + place;
      for (int64_t d = 0; d < size; ++d) out[d] = narrow(rows[q * size + d] * inverse);
    }
    p.lse[(b * p.query_heads + h) * p.query_length + row] = l != 0.0f ? m + std::log(l) : NONE;
  }
}

// scores[j, q] = sum_d keys[j, d] * query[d, q], ROWS keys at a time.
template <int VECS>
void multiply_keys(const float* keys, int n, int64_t size, const float* query, float* scores) {
  constexpr int Q = Tile<VECS>::QUERIES;
  for (int j = 0; j < n; j += ROWS) {
    vf c[ROWS][VECS] = {};
    const float* k = keys + j * size;
    for (int64_t d = 0; d < size; ++d) {
      vf q[VECS];
#pragma GCC unroll 4
      for (int v = 0; v < VECS; ++v) q[v] = load(query + d * Q + v * LANES);
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; ++r) {
        const vf x = all(k[r * size + d]);
#pragma GCC unroll 4
        for (int v = 0; v < VECS; ++v) c[r][v] += x * q[v];
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < VECS; ++v) store(scores + (j + r) * Q + v * LANES, c[r][v]);
  }
}

// acc[d, q] = acc[d, q] * alpha[q] + sum_j values[j, d] * weights[j, q].
template <int VECS>
void multiply_values(const float* values, int n, int64_t size, const float* weights, const vf* alpha, float* acc) {
  constexpr int Q = Tile<VECS>::QUERIES;
  for (int64_t d = 0; d < size; d += ROWS) {
    vf c[ROWS][VECS];
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < VECS; ++v) c[r][v] = load(acc + (d + r) * Q + v * LANES) * alpha[v];
    for (int j = 0; j < n; ++j) {
      vf x[VECS];
#pragma GCC unroll 4
      for (int v = 0; v < VECS; ++v) x[v] = load(weights + j * Q + v * LANES);
      const float* value = values + j * size + d;
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; ++r) {
        const vf y = all(value[r]);
#pragma GCC unroll 4
        for (int v = 0; v < VECS; ++v) c[r][v] += y * x[v];
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < VECS; ++v) store(acc + (d + r) * Q + v * LANES, c[r][v]);
  }
}

// Which queries see a key: all bits of their lane. As unsigned numbers, distances back to a key that lies ahead are huge.
template <Rule RULE>
inline vi allowed(const FocusProblem& p, vi qpos, vi qnear, vi qlow, vi qhigh, int32_t kpos, int32_t klow, int32_t khigh) {
  const vu back = (vu)(qpos - all(kpos)), reach = vu{} + (uint32_t)p.reach;
  if (RULE == CAUSAL) return back < reach;
  vi shared = qlow & klow;
  if (khigh) shared |= qhigh & khigh;
  const vi visible = back < (kpos < p.num_sinks ? reach : (vu)qnear);
  return RULE == LOCAL ? visible & (shared == vi{}) : visible | ((back < reach) & (shared != vi{}));
}

template <int VECS, Rule RULE>
void attend(const Work& w, int64_t b, const int32_t* list, int n, const float* keys, const float* values, float* scores, Tile<VECS>& t) {
  const FocusProblem& p = *w.p;
  constexpr int Q = Tile<VECS>::QUERIES;
  const int padded = (n + ROWS - 1) / ROWS * ROWS;
  multiply_keys<VECS>(keys, padded, p.head_size, t.query, scores);
  const int32_t *kpos = &w.position[b * p.key_length], *low = &w.low[b * p.key_length], *high = &w.high[b * p.key_length];
  if (p.softcap > 0)
    for (int j = 0; j < n * VECS; ++j) store(scores + j * LANES, capped(load(scores + j * LANES), p.softcap));
  const bool masked = RULE != CAUSAL || kpos[list[n - 1]] > t.first_position || t.last_position - kpos[list[0]] >= p.reach;
  if (masked)
    for (int j = 0; j < n; ++j)
      for (int v = 0; v < VECS; ++v) {
        const vi ok = allowed<RULE>(p, load(t.position + v * LANES), load(t.near + v * LANES), load(t.low + v * LANES),
                                    load(t.high + v * LANES), kpos[list[j]], low[list[j]], high[list[j]]);
        float* s = scores + j * Q + v * LANES;
        store(s, pick(ok, load(s), all(NONE)));
      }
  vf alpha[VECS];
  for (int v = 0; v < VECS; ++v) {
    vf top = t.m[v];
    for (int j = 0; j < n; ++j) top = larger(top, load(scores + j * Q + v * LANES));
    const vf base = pick(top == NONE, vf{}, top);
    alpha[v] = pick(t.m[v] == NONE, vf{}, exponential(t.m[v] - base));
    vf sum = t.l[v] * alpha[v];
    for (int j = 0; j < n; ++j) {
      float* s = scores + j * Q + v * LANES;
      vf x = load(s), e = exponential(x - base);
      if (masked) e = pick(x == NONE, vf{}, e);
      store(s, e);
      sum += e;
    }
    t.m[v] = top;
    t.l[v] = sum;
  }
  multiply_values<VECS>(values, n, p.head_size, scores, alpha, t.acc);
}

// Everything in fp32 vectors; bfloat16 is widened as it is read.
template <int V>
struct Lanes {
  struct State {};  // of a thread, while it works
  static constexpr int VECS = V;
  static int64_t padded(int64_t head_size) { return head_size; }

  static void read_query(const FocusProblem& p, int64_t offset, int q, Scratch& s) {
    float* row = s.rows + q * s.size;
    read_row(p, p.query, offset, row);
    for (int64_t d = 0; d < s.size; ++d) row[d] *= p.scale;
  }

  static void pack_queries(const Scratch& s, float* query) { transpose(s.rows, LANES * VECS, s.size, query); }

  // Copies the keys and values of list[0, n).
  static void read_block(const FocusProblem& p, int64_t kbase, int64_t vbase, const int32_t* list, int64_t n, Scratch& s) {
    for (int64_t j = 0; j < n; ++j) {
      read_row(p, p.key, kbase + list[j] * p.key_stride[2], s.keys + j * s.size);
      read_row(p, p.value, vbase + list[j] * p.value_stride[2], s.values + j * s.size);
    }
  }

  // Attends to keys [from, from + n) of the block that was read; list holds their tokens.
  template <Rule RULE>
  static void step(const Work& w, int64_t b, const int32_t* list, int64_t from, int n, Scratch& s, Tile<VECS>& t) {
    attend<VECS, RULE>(w, b, list, n, s.keys + from * s.size, s.values + from * s.size, s.scores, t);
  }
};

#if MATRIX_TILES
#include "matrix_tiles.h"
#endif

// Up to SUBTILES tiles of one head over one list of keys: first the range of the sinks (may be empty), then the rest.
template <class Engine, Rule RULE>
void run_tiles(const Work& w, int64_t b, int64_t h, const List& list, Tile<Engine::VECS>* tiles, int count, Scratch& s) {
  const FocusProblem& p = *w.p;
  const int64_t kv = h / (p.query_heads / p.key_heads);
  const int64_t kbase = b * p.key_stride[0] + kv * p.key_stride[1], vbase = b * p.value_stride[0] + kv * p.value_stride[1];
  int64_t low = list.keys.size(), high = 0;
  for (int i = 0; i < count; ++i) low = std::min(low, tiles[i].begin), high = std::max(high, tiles[i].end);
  int64_t sinks = 0;
  if (RULE == LOCAL) {
    const int64_t most = std::lower_bound(list.keys.begin(), list.keys.end(), w.first_real[b] + p.num_sinks) - list.keys.begin();
    for (int i = 0; i < count; ++i) sinks = std::max(sinks, std::min(tiles[i].begin, most));
  }
  for (int pass = 0; pass < 2; ++pass) {
    const int64_t end = pass == 0 ? sinks : high;
    for (int64_t from = pass == 0 ? 0 : low; from < end; from += BLOCK) {
      const int64_t n = std::min<int64_t>(BLOCK, end - from);
      Engine::read_block(p, kbase, vbase, &list.keys[from], n, s);
      const int32_t* next = &list.keys[from] + n;
      const int64_t ahead = std::min<int64_t>(BLOCK, end - from - n);
      for (int i = 0; i < count; ++i) {
        for (int64_t j = ahead * i / count; j < ahead * (i + 1) / count; ++j) prefetch_pair(p, b, h, next[j]);  // beside the work
        const int64_t a = pass == 0 ? from : std::max(from, tiles[i].begin);
        const int64_t z = std::min(from + n, pass == 0 ? tiles[i].begin : tiles[i].end);
        if (a < z) Engine::template step<RULE>(w, b, &list.keys[a], a - from, (int)(z - a), s, tiles[i]);
      }
    }
  }
}

// All the queries list.queries[begin, end), at most SUBTILES tiles of VECS vectors.
template <class Engine, Rule RULE>
void run_queries(const Work& w, int64_t b, Head head, const List& list, int64_t begin, int64_t end, bool resume, Scratch& s) {
  const FocusProblem& p = *w.p;
  constexpr int VECS = Engine::VECS;
  Tile<VECS> tiles[SUBTILES];
  int count = 0;
  for (int64_t q = begin; q < end; q += LANES * VECS, ++count) {
    Tile<VECS>& t = tiles[count];
    t.query = s.tiles + (size_t)count * 2 * s.size * LANES * VECS;
    t.acc = t.query + s.size * LANES * VECS;
    const int32_t* queries = &list.queries[q];
    const int queries_here = (int)std::min<int64_t>(LANES * VECS, end - q);
    const int32_t last = queries[queries_here - 1];
    t.end = std::upper_bound(list.keys.begin(), list.keys.end(), last) - list.keys.begin();
    const int64_t back = RULE == LOCAL ? near_of(p, p.window, w.position[b * p.key_length + queries[0]]) : p.reach - 1;
    t.begin = back < queries[0] ? std::lower_bound(list.keys.begin(), list.keys.end(), queries[0] - back) - list.keys.begin() : 0;
    load_tile<Engine>(w, b, head, queries, queries_here, resume, s, t);
  }
  run_tiles<Engine, RULE>(w, b, head.number, list, tiles, count, s);
  for (int i = 0; i < count; ++i) save_tile<VECS, RULE>(w, b, head, s.rows, tiles[i]);
}

// Runs `worker` on some threads, the caller's included, and waits.
template <class Worker>
void on_threads(const FocusProblem& p, int64_t threads, Worker& worker) {
  std::atomic<bool> failed{false};
  auto guarded = [&] {  // nothing may be thrown out of a thread
    try {
      worker();
    } catch (const std::exception&) {
      failed = true;
    }
  };
  if (threads <= 1) {
    guarded();
  } else if (p.parallel) {  // the whole team: a smaller one would end the other workers, and torch start them again
    p.parallel([](void* work) { (*(decltype(guarded)*)work)(); }, &guarded, (unsigned)p.threads, 0);
  } else {
    std::vector<std::thread> others;
    try {
      for (int64_t i = 1; i < threads; ++i) others.emplace_back(guarded);
    } catch (const std::exception&) {  // the system gives no more threads; those there are do the work
    }
    guarded();
    for (auto& thread : others) thread.join();
  }
  if (failed) throw std::bad_alloc();
}

struct Task {
  const Work* work;
  int64_t b;
  Head head;
  const List* list;
  int64_t begin, end;
  Rule rule;
  bool resume;    // from what the local pass left
  double pairs;   // about how many
};

template <class Engine>
void run_task(const Task& t, Scratch& scratch) {
  switch (t.rule) {
    case CAUSAL: return run_queries<Engine, CAUSAL>(*t.work, t.b, t.head, *t.list, t.begin, t.end, t.resume, scratch);
    case LOCAL: return run_queries<Engine, LOCAL>(*t.work, t.b, t.head, *t.list, t.begin, t.end, t.resume, scratch);
    case DENSE: return run_queries<Engine, DENSE>(*t.work, t.b, t.head, *t.list, t.begin, t.end, t.resume, scratch);
  }
}

template <template <int> class Engine>
void run_with(const FocusProblem& p, const std::vector<Task>& tasks) {
  std::atomic<size_t> next{0};
  auto worker = [&] {
    [[maybe_unused]] typename Engine<1>::State state;
    Scratch scratch(Engine<1>::padded(p.head_size));
    for (size_t i; (i = next.fetch_add(1)) < tasks.size();)
      tasks[i].end - tasks[i].begin <= LANES ? run_task<Engine<1>>(tasks[i], scratch) : run_task<Engine<VECTORS>>(tasks[i], scratch);
  };
  on_threads(p, std::min<int64_t>(p.threads, tasks.size()), worker);
}

// The long ones first: what is left for the end is small, so threads finish together.
void run(const FocusProblem& p, std::vector<Task>& tasks) {
  std::stable_sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) { return a.pairs > b.pairs; });
#if MATRIX_TILES
  if (multiplies_in_tiles(p)) return run_with<MatrixTiles>(p, tasks);
#endif
  run_with<Lanes>(p, tasks);
}

constexpr int64_t FEWEST_TASKS = 32;  // of one pass over the whole text by all heads of a call

// Args: `heads`, of the whole call, for the size of a task.
void add_tasks(const Work& w, int64_t b, Head head, const List& list, Rule rule, bool resume, int64_t heads, std::vector<Task>& tasks) {
  const FocusProblem& p = *w.p;
  constexpr int64_t tile = LANES * VECTORS;
  const int64_t share = p.batch * p.query_length * heads / FEWEST_TASKS;  // not by thread: their number changes no result
  const int64_t chunk = std::min<int64_t>(SUBTILES, share / tile + 1) * tile, total = list.queries.size();
  for (int64_t begin = 0; begin < total; begin += chunk) {
    const int64_t end = std::min(total, begin + chunk);
    const double keys = (double)list.keys.size() * end / total, near = near_of(p, p.window, end) + p.num_sinks + (end - begin);
    tasks.push_back({&w, b, head, &list, begin, end, rule, resume, (end - begin) * (rule == LOCAL ? std::min(keys, near) : keys)});
  }
}

bool is_real(const FocusProblem& p, int64_t b, int64_t i) { return !p.real || p.real[b * p.key_length + i]; }

int64_t first_real(const FocusProblem& p, int64_t b) {  // 0 when nothing is real: every query then stays empty
  int64_t first = 0;
  while (first < p.key_length && !is_real(p, b, first)) ++first;
  return first < p.key_length ? first : 0;
}

List whole_text(const FocusProblem& p, int64_t b) {
  List list;
  for (int64_t i = 0; i < p.key_length; ++i) {
    if (is_real(p, b, i)) list.keys.push_back((int32_t)i);
    if (i >= p.key_length - p.query_length) list.queries.push_back((int32_t)i);
  }
  return list;
}

struct Histogram {  // distinct memberships of one batch row, and how many tokens and keys each meets
  std::vector<int64_t> signature, tokens, meets;
  std::vector<int32_t> code;  // (Tk)
  bool complete = true;       // every class shares a group with every class
};

constexpr size_t MOST_CLASSES = 1024;
constexpr int64_t MOST_LISTED = 64;  // entries of all key lists together, per token: memory stays linear in the text

constexpr int64_t FEWEST_TOKENS = 8;  // a class, on average, for a pass by class to be worth a closer look

bool count_classes(const FocusProblem& p, const int64_t* membership, Histogram& histogram) {
  const size_t most = p.mode == 1 ? MOST_CLASSES : std::min<size_t>(MOST_CLASSES, p.key_length / FEWEST_TOKENS + 1);
  std::unordered_map<int64_t, int32_t> codes;
  histogram.code.resize(p.key_length);
  for (int64_t i = 0; i < p.key_length; ++i) {
    auto [it, fresh] = codes.try_emplace(membership[i], (int32_t)histogram.signature.size());
    if (fresh) {
      if (histogram.signature.size() == most) return false;
      histogram.signature.push_back(membership[i]), histogram.tokens.push_back(0);
    }
    histogram.code[i] = it->second;
    ++histogram.tokens[it->second];
  }
  histogram.meets.assign(histogram.signature.size(), 0);
  int64_t listed = 0;
  for (size_t s = 0; s < histogram.signature.size(); ++s)
    for (size_t other = 0; other < histogram.signature.size(); ++other)
      if (histogram.signature[s] & histogram.signature[other])
        histogram.meets[s] += histogram.tokens[other];
      else
        histogram.complete = false;
  for (int64_t meets : histogram.meets) listed += meets;
  return histogram.complete || listed <= MOST_LISTED * p.key_length;
}

// Whether the pass by class is expected to be faster: pairs in whole tiles, keys copied, near pairs, all in the time one
// pair takes in that pass. See costs.py for the constants.
bool by_class_is_faster(const FocusProblem& p, const std::vector<Histogram>& rows) {
  const double half = 1.0 - 0.5 * p.query_length / p.key_length, share = (double)p.query_length / p.key_length;
  const double tile = LANES * VECTORS, near = near_of(p, p.window, p.key_length - p.query_length / 2);
  double by_class = 0, dense = 0;
  for (const Histogram& row : rows) {
    for (size_t s = 0; s < row.signature.size(); ++s) {
      const double queries = std::max(1.0, row.tokens[s] * share);
      const double whole = queries <= LANES ? LANES : std::ceil(queries / tile) * tile;
      by_class += (whole + p.copy_cost * std::ceil(queries / (SUBTILES * tile))) * row.meets[s] * half;
    }
    by_class += p.local_cost * p.query_length * std::min<double>(near + p.num_sinks + tile, p.key_length);
    dense += p.dense_cost * p.query_length * p.key_length * half;
  }
  return by_class < dense;
}

void build_classes(const FocusProblem& p, int64_t b, const Histogram& row, std::vector<List>& classes) {
  const int64_t first = p.key_length - p.query_length;
  classes.resize(row.signature.size());
  for (size_t s = 0; s < classes.size(); ++s) classes[s].keys.reserve(row.meets[s]), classes[s].queries.reserve(row.tokens[s]);
  std::vector<std::vector<int32_t>> meeting(classes.size());
  for (size_t s = 0; s < classes.size(); ++s)
    for (size_t other = 0; other < classes.size(); ++other)
      if (row.signature[s] & row.signature[other]) meeting[s].push_back((int32_t)other);
  for (int64_t i = 0; i < p.key_length; ++i) {
    if (is_real(p, b, i))
      for (int32_t other : meeting[row.code[i]]) classes[other].keys.push_back((int32_t)i);
    if (i >= first) classes[row.code[i]].queries.push_back((int32_t)i);
  }
}

// A step with few queries: every query has its own list of keys, and each row of keys and values is read where it lies,
// once for all query heads that share it. The cost is that of the keys attended; finding them reads 8 bytes a token.
struct Step {
  int64_t b, query;  // query counts from the first of the step
  std::vector<int32_t> keys;
};

// Of every setting in turn: all queries of all texts.
std::vector<Step> visible_keys(const FocusProblem& p) {
  std::vector<Step> steps;
  for (int64_t i = 0; i < p.settings * p.batch; ++i) {
    const int64_t setting = i / p.batch, b = i % p.batch, first = first_real(p, b);
    const int64_t plane = p.setting_plane ? p.setting_plane[setting] : 0, window = std::min(p.setting_window ? p.setting_window[setting] : p.window, p.key_length);
    const int64_t* membership = p.membership + plane * p.plane_stride + b * p.batch_stride;
    for (int64_t q = 0; q < p.query_length; ++q) {
      const int64_t own = p.key_length - p.query_length + q, groups = membership[own];
      const int64_t near = near_of(p, window, own - first);
      std::vector<int32_t> keys(own + 1);
      int32_t* next = keys.data();
      for (int64_t j = first; j <= own; ++j) {
        *next = (int32_t)j;
        next += own - j < p.reach && ((membership[j] & groups) != 0 || own - j <= near || j - first < p.num_sinks);
      }
      keys.resize(next - keys.data());
      if (p.real) keys.erase(std::remove_if(keys.begin(), keys.end(), [&](int32_t j) { return !is_real(p, b, j); }), keys.end());
      steps.push_back({b, q, std::move(keys)});
    }
  }
  return steps;
}

inline float sum(vf x) {  // by halves: sixteen additions in a row would wait for each other
  float lane[LANES];
  store(lane, x);
  for (int half = LANES / 2; half; half /= 2)
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  return lane[0];
}

inline float largest(vf x) {
  float top = x[0];
  for (int i = 1; i < LANES; ++i) top = std::max(top, x[i]);
  return top;
}

// Scores -> weights that sum to 1, in place; what lies behind the n scores, up to whole vectors, becomes nothing. Returns
// the logsumexp.
float softmax(float* s, int64_t n, float softcap) {
  if (n == 0) return NONE;
  const int64_t padded = (n + LANES - 1) / LANES * LANES;
  std::fill(s + n, s + padded, NONE);
  if (softcap > 0) {
    for (int64_t j = 0; j < padded; j += LANES) store(s + j, capped(load(s + j), softcap));
    std::fill(s + n, s + padded, NONE);
  }
  vf tops = all(NONE), total{};
  for (int64_t j = 0; j < padded; j += LANES) tops = larger(tops, load(s + j));
  const float top = largest(tops);
  for (int64_t j = 0; j < padded; j += LANES) {
    const vf e = exponential(load(s + j) - top);
    store(s + j, e);
    total += e;
  }
  const float l = sum(total), share = 1.0f / l;
  for (int64_t j = 0; j < padded; j += LANES) store(s + j, load(s + j) * share);
  return top + std::log(l);
}

template <int ELEMENT>
inline vf lanes_of(const void* base, int64_t offset) {
  if constexpr (ELEMENT == 0) return load((const float*)base + offset);
  typedef uint16_t half_mem __attribute__((vector_size(LANES * 2), aligned(2), may_alias));
  const vi wide = __builtin_convertvector(*(const half_mem*)((const uint16_t*)base + offset), vi);
  return (vf)(wide << 16);
}

// The sums of LANES vectors, each in its place.
inline vf sums(vf* row) {
  swap_halves<1>(row);
  swap_halves<2>(row);
  swap_halves<4>(row);
  swap_halves<8>(row);
#pragma GCC unroll 16
  for (int half = LANES / 2; half; half /= 2)
    for (int i = 0; i < half; ++i) row[i] += row[i + half];
  return row[0];
}

// out[d .. d + VECS * LANES) of one query head: the weighted rows, in registers.
template <int ELEMENT, int VECS>
void weighted_rows(const FocusProblem& p, const Step& step, const float* weights, int64_t base, float* out) {
  vf acc[VECS] = {};
  for (size_t j = 0; j < step.keys.size(); ++j) {
    const int64_t row = base + step.keys[j] * p.value_stride[2];
#pragma GCC unroll 4
    for (int v = 0; v < VECS; ++v) acc[v] += all(weights[j]) * lanes_of<ELEMENT>(p.value, row + v * LANES);
  }
#pragma GCC unroll 4
  for (int v = 0; v < VECS; ++v) store(out + v * LANES, acc[v]);
}

// One head of those told apart, of one query: its query heads, which share a key head, one after another over scores kept
// in `memory`.
template <int ELEMENT>
void step_head(const FocusProblem& p, const Step& step, int64_t head, std::vector<float>& memory) {
  const int64_t size = p.head_size, shares = p.query_heads / p.told_apart, n = step.keys.size();
  const int64_t first_head = head * shares, kv = head * p.key_heads / p.told_apart;
  const int64_t row_size = (n + LANES - 1) / LANES * LANES;  // of one query head's scores
  const int64_t kbase = step.b * p.key_stride[0] + kv * p.key_stride[1], vbase = step.b * p.value_stride[0] + kv * p.value_stride[1];
  memory.resize(shares * (row_size + 2 * size));
  float *scores = memory.data(), *query = scores + shares * row_size, *acc = query + shares * size;
  for (int64_t r = 0; r < shares; ++r) {
    read_row(p, p.query, step.b * p.query_stride[0] + (first_head + r) * p.query_stride[1] + step.query * p.query_stride[2], query + r * size);
    for (int64_t d = 0; d < size; ++d) query[r * size + d] *= p.scale;
  }
  for (int64_t first = 0; first < n; first += LANES) {
    const int64_t count = std::min<int64_t>(LANES, n - first);
    for (int64_t j = first + LANES; j < std::min(n, first + 2 * LANES); ++j)  // scattered rows are all about latency
      prefetch_row(p, p.key, kbase + step.keys[j] * p.key_stride[2]);
    for (int64_t r = 0; r < shares; ++r) {
      vf row[LANES] = {};
      for (int64_t j = 0; j < count; ++j) {
        const int64_t key = kbase + step.keys[first + j] * p.key_stride[2];
        for (int64_t d = 0; d < size; d += LANES) row[j] += lanes_of<ELEMENT>(p.key, key + d) * load(query + r * size + d);
      }
      store(scores + r * row_size + first, sums(row));
    }
    for (int64_t j = first; j < first + count; ++j) prefetch_row(p, p.value, vbase + step.keys[j] * p.value_stride[2]);
  }
  for (int64_t r = 0; r < shares; ++r) {
    float* weights = scores + r * row_size;
    p.lse[(step.b * p.query_heads + first_head + r) * p.query_length + step.query] = softmax(weights, n, p.softcap);
    int64_t d = 0;
    for (; d + 4 * LANES <= size; d += 4 * LANES) weighted_rows<ELEMENT, 4>(p, step, weights, vbase + d, acc + r * size + d);
    for (; d < size; d += LANES) weighted_rows<ELEMENT, 1>(p, step, weights, vbase + d, acc + r * size + d);
  }
  const int64_t place = ((step.b * p.query_length + step.query) * p.query_heads + first_head) * size;
  if (ELEMENT == 0)
    std::memcpy((float*)p.out + place, acc, sizeof(float) * shares * size);
  else
    for (int64_t d = 0; d < shares * size; ++d) ((uint16_t*)p.out)[place + d] = narrow(acc[d]);
}

// Groups of all tokens, as some settings of a call have them.
struct Plane {
  std::vector<int32_t> low, high;          // (B, Tk), the two halves of the membership
  std::vector<Histogram> rows;             // (B)
  std::vector<std::vector<List>> classes;  // (B), where a setting goes by class
  bool counted = false;                    // classes are few enough
  bool complete = false;                   // every token shares a group with every token

  Plane(const FocusProblem& p, const int64_t* membership) : low(p.batch * p.key_length), high(low.size()), rows(p.batch) {
    for (int64_t b = 0; b < p.batch; ++b)
      for (int64_t i = 0; i < p.key_length; ++i) {
        const uint64_t bits = (uint64_t)membership[b * p.batch_stride + i];
        low[b * p.key_length + i] = (int32_t)(uint32_t)bits, high[b * p.key_length + i] = (int32_t)(uint32_t)(bits >> 32);
      }
    if (p.mode == 2) return;
    counted = true;
    for (int64_t b = 0; b < p.batch && counted; ++b) counted = count_classes(p, membership + b * p.batch_stride, rows[b]);
    complete = counted && std::all_of(rows.begin(), rows.end(), [](const Histogram& row) { return row.complete; });
  }
};

struct Setting {  // of some heads of a call
  FocusProblem own;  // with the setting's window
  Work work;
  std::vector<int64_t> heads;
  Plane* plane;
  bool full, by_class;
};

// A whole text, or the end of one, by all heads of a call.
struct Call {
  FocusProblem& p;
  std::vector<int32_t> position;
  std::vector<int64_t> first_real;
  std::vector<List> text;  // (B)
  std::vector<std::unique_ptr<Plane>> planes;
  std::vector<Setting> settings;
  int64_t heads = 0;  // of all settings

  explicit Call(FocusProblem& problem) : p(problem), position(p.batch * p.key_length), first_real(p.batch) {
    for (int64_t b = 0; b < p.batch; ++b) {
      first_real[b] = ::first_real(p, b);
      for (int64_t i = 0; i < p.key_length; ++i) position[b * p.key_length + i] = (int32_t)(i - first_real[b]);
      text.push_back(whole_text(p, b));
    }
    const int64_t count = p.head_setting ? p.settings : 1;
    settings.reserve(count);  // works point to their problems
    for (int64_t i = 0; i < count; ++i) add_setting(i);
  }

  void add_setting(int64_t number) {
    Setting setting{p, {}, {}, nullptr, false, false};
    for (int64_t h = 0; h < p.query_heads; ++h)
      if (!p.head_setting || p.head_setting[h * p.told_apart / p.query_heads] == number) setting.heads.push_back(h);
    if (setting.heads.empty()) return;
    heads += setting.heads.size();
    const size_t plane = p.head_setting ? p.setting_plane[number] : 0;
    if (p.head_setting) setting.own.window = std::min(p.setting_window[number], p.key_length);
    if (planes.size() <= plane) planes.resize(plane + 1);
    if (!planes[plane]) planes[plane].reset(new Plane(p, p.membership + plane * p.plane_stride));
    Plane& groups = *(setting.plane = planes[plane].get());
    setting.full = setting.own.window >= p.key_length - 1 || groups.complete;
    setting.by_class = !setting.full && groups.counted && (p.mode == 1 || by_class_is_faster(setting.own, groups.rows));
    if (setting.by_class && groups.classes.empty()) {
      groups.classes.resize(p.batch);
      for (int64_t b = 0; b < p.batch; ++b) build_classes(p, b, groups.rows[b], groups.classes[b]);
    }
    settings.push_back(std::move(setting));
    Setting& kept = settings.back();
    kept.work = {&kept.own, position.data(), groups.low.data(), groups.high.data(), first_real.data()};
  }

  // The one pass over the text of all heads that do not go by class.
  void add_whole(std::vector<Task>& tasks) const {
    for (const Setting& setting : settings)
      for (int64_t h : setting.heads)
        for (int64_t b = 0; b < p.batch && !setting.by_class; ++b)
          add_tasks(setting.work, b, {h, 0}, text[b], setting.full ? CAUSAL : DENSE, false, heads, tasks);
  }

  // Both passes of a head by class.
  void add_by_class(const Setting& setting, Head head, std::vector<Task>& near, std::vector<Task>& tasks) const {
    for (int64_t b = 0; b < p.batch; ++b) {
      add_tasks(setting.work, b, head, text[b], LOCAL, false, heads, near);
      for (const List& list : setting.plane->classes[b]) add_tasks(setting.work, b, head, list, CAUSAL, true, heads, tasks);
    }
  }

  void run_passes(std::vector<Task>& near, std::vector<Task>& tasks) const {
    const double start = now();
    if (!near.empty()) run(p, near);
    const double near_done = now();
    if (!tasks.empty()) run(p, tasks);
    p.seconds[1] += near_done - start, p.seconds[2] += now() - near_done;
    near.clear(), tasks.clear();
  }
};

constexpr int64_t PARTIAL_BYTES = 8 << 20;  // of what the local pass leaves in fp32, unless that is less than a head a thread

}  // namespace

// 1 where bfloat16 is multiplied in the processor's matrix tiles.
extern "C" int focus_matrix_tiles() {
#if MATRIX_TILES
  return tiles_permitted();
#else
  return 0;
#endif
}

// Returns 0, or 1 when memory ran out.
extern "C" int focus_attention_cpu(FocusProblem* p) try {
  const double start = now();
  Call call(*p);
  p->seconds[0] = now() - start, p->seconds[1] = p->seconds[2] = 0;
  std::vector<Task> near, tasks;
  call.add_whole(tasks);
  std::vector<std::pair<Setting*, int64_t>> by_class;
  for (Setting& setting : call.settings)
    for (int64_t h : setting.heads)
      if (setting.by_class) by_class.emplace_back(&setting, h);
  if (p->element == 0) {  // the output holds what the local pass leaves
    for (auto [setting, h] : by_class) {
      setting->work.partial = (float*)p->out, setting->work.slots = p->query_heads;
      call.add_by_class(*setting, {h, h}, near, tasks);
    }
    call.run_passes(near, tasks);
    return 0;
  }
  // A few heads at a time: their fp32 numbers stay in the cache and in memory that is there already.
  const int64_t head_numbers = p->batch * p->query_length * p->head_size, total = by_class.size();
  const int64_t fit = PARTIAL_BYTES / std::max<int64_t>(1, head_numbers * sizeof(float));
  const int64_t at_once = std::min<int64_t>(total, std::max<int64_t>(p->threads, fit));
  std::unique_ptr<float[]> partial(new float[head_numbers * at_once]);
  for (int64_t first = 0; first < total; first += at_once) {
    for (int64_t i = first; i < std::min(total, first + at_once); ++i) {
      auto [setting, h] = by_class[i];
      setting->work.partial = partial.get(), setting->work.slots = at_once;
      call.add_by_class(*setting, {h, i - first}, near, tasks);
    }
    call.run_passes(near, tasks);
  }
  call.run_passes(near, tasks);
  return 0;
} catch (const std::exception&) {
  return 1;
}

// Few queries over many keys, each with its own list; the head size is a multiple of LANES. Returns as above.
extern "C" int focus_step_cpu(FocusProblem* p) try {
  const double start = now();
  const std::vector<Step> steps = visible_keys(*p);
  const double planned = now();
  const int64_t queries = p->batch * p->query_length;
  auto step_of = [&](int64_t query, int64_t head) -> const Step& { return steps[(p->head_setting ? p->head_setting[head] : 0) * queries + query]; };
  int64_t attended = 0;  // by all heads told apart
  for (int64_t query = 0; query < queries; ++query)
    for (int64_t head = 0; head < p->told_apart; ++head) attended += step_of(query, head).keys.size();
  std::atomic<int64_t> next{0};
  const auto step = p->element == 0 ? step_head<0> : step_head<1>;
  auto worker = [&] {
    std::vector<float> memory;
    for (int64_t i; (i = next.fetch_add(1)) < queries * p->told_apart;)
      step(*p, step_of(i / p->told_apart, i % p->told_apart), i % p->told_apart, memory);
  };
  // Numbers of keys that repay a second thread: starting one costs some 20 us, waking one that spins about 2.
  const int64_t worth = attended * p->head_size / (p->parallel ? 1 << 15 : 1 << 20) + 1;
  on_threads(*p, std::min<int64_t>(p->threads, worth), worker);
  p->seconds[0] = planned - start, p->seconds[1] = 0, p->seconds[2] = now() - planned;
  return 0;
} catch (const std::exception&) {
  return 1;
}
