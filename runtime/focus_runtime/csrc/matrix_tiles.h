// Products in the processor's matrix tiles (AMX): bfloat16 in, fp32 sums. Part of fused.cpp, inside its namespace.
//
// A tile register holds 16 rows of 64 bytes. One product adds to C (16 x 16 fp32) what A (16 rows of 32 numbers) and B
// (16 pairs of rows, the two numbers of a pair side by side, by 16 columns) give. Everything is laid out as in the rest of
// fused.cpp, keys or dimensions in rows and queries in columns, so softmax stays vertical:
//
//   scores (keys, queries) = keys (rows as they are)     x queries (pairs of dimensions)
//   acc (D, queries)      += values (transposed: D, keys) x weights (pairs of keys)
//
// Weights are rounded to bfloat16 for the second product, as in torch's kernel; their sum is that of the unrounded ones.

// Linux lends the tiles to programs that ask; a sandbox may refuse.
bool tiles_permitted() {
  static const bool permitted = [] {
    constexpr long REQUEST = 0x1023, TILE_DATA = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
  }();
  return permitted;
}

bool multiplies_in_tiles(const FocusProblem& p) { return p.element == 1 && p.matrix_tiles && p.scale > 0 && tiles_permitted(); }

// While it lives: eight tiles of 16 rows of 64 bytes, and numbers too small for fp32's full precision count as zero. Torch's
// kernels find both as they left them.
struct TileState {
  struct alignas(64) Config {
    uint8_t palette = 0, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  };
  Config before;
  unsigned control;
  TileState() {
    _tile_storeconfig(&before);
    Config config;
    config.palette = 1;
    for (int i = 0; i < 8; ++i) config.row_bytes[i] = 64, config.rows[i] = 16;
    asm volatile("" ::: "memory");
    _tile_loadconfig(&config);
    control = _mm_getcsr();
    _mm_setcsr(control | 0x8040);  // flush results to zero, read denormals as zero
  }
  ~TileState() {
    _mm_setcsr(control);
    asm volatile("" ::: "memory");
    if (before.palette)
      _tile_loadconfig(&before);
    else
      _tile_release();
  }
  TileState(const TileState&) = delete;
};

constexpr int DEPTH = 32;                   // numbers that one product sums
constexpr int WIDTH = BLOCK + DEPTH;        // keys in a row of transposed values: products may begin anywhere in the block
constexpr float LOG2_E = 1.44269504088896341f, LN_2 = 0.693147180559945309f;

inline void fence() { asm volatile("" ::: "memory"); }  // some compilers do not know that tiles read and write memory

// 2^x, relative error below 3e-6; 2^-inf is 0, and NaN stays NaN.
inline __m512 power_of_two(__m512 x) {
  const __m512 f = _mm512_reduce_ps(x, 0x08);  // what is left of the nearest integer, in [-1/2, 1/2]
  __m512 p = _mm512_fmadd_ps(f, _mm512_set1_ps(9.5701e-3f), _mm512_set1_ps(5.591786e-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.4024745e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.9312181e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.9999926e-1f));
  return _mm512_scalef_ps(p, _mm512_sub_ps(x, f));
}

// Two rows of fp32 as one row of pairs of bfloat16, rounded to nearest (halves up: weights are positive).
inline __m512i pairs(__m512 first, __m512 second) {
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i a = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(first), half), 16);
  return _mm512_mask_blend_epi16(0xAAAAAAAA, a, _mm512_add_epi32(_mm512_castps_si512(second), half));
}

template <int V>
struct MatrixTiles {
  using State = TileState;
  static constexpr int VECS = V, Q = LANES * V;
  static int64_t padded(int64_t head_size) { return (head_size + DEPTH - 1) / DEPTH * DEPTH; }

  static void read_query(const FocusProblem& p, int64_t offset, int q, Scratch& s) {  // unscaled: bfloat16 stays exact
    uint16_t* row = (uint16_t*)s.rows + q * s.size;
    copy((const uint16_t*)p.query + offset, p.head_size, row);
  }

  static void pack_queries(const Scratch& s, float* query) { transpose(s.rows, Q, s.size / 2, query); }

  static void read_block(const FocusProblem& p, int64_t kbase, int64_t vbase, const int32_t* list, int64_t n, Scratch& s) {
    uint16_t* keys = (uint16_t*)s.keys;
    for (int64_t j = 0; j < n; ++j) copy((const uint16_t*)p.key + kbase + list[j] * p.key_stride[2], p.head_size, keys + j * s.size);
    const uint16_t* base = (const uint16_t*)p.value + vbase;
    for (int64_t j = 0; j < n; j += DEPTH)
      for (int64_t d = 0; d < p.head_size; d += LANES) {
        const __mmask16 inside = p.head_size - d >= LANES ? 0xFFFF : 0xFF;  // the head size is a multiple of 8
        alignas(64) float square[LANES * LANES];  // (pairs of keys, dimensions)
        for (int64_t i = 0; i < LANES; ++i) {
          __m512i both = _mm512_setzero_si512();
          if (j + 2 * i < n) both = wide(base + list[j + 2 * i] * p.value_stride[2] + d, inside);
          if (j + 2 * i + 1 < n)
            both = _mm512_or_si512(both, _mm512_slli_epi32(wide(base + list[j + 2 * i + 1] * p.value_stride[2] + d, inside), 16));
          _mm512_store_si512(square + i * LANES, both);
        }
        transpose(square, LANES, s.values + (d * WIDTH + j) / 2, WIDTH / 2);
      }
  }

  template <Rule RULE>
  static void step(const Work& w, int64_t b, const int32_t* list, int64_t from, int n, Scratch& s, Tile<VECS>& t) {
    const FocusProblem& p = *w.p;
    multiply_keys((const uint16_t*)s.keys + from * s.size, n, s.size, t.query, s.scores);
    float factor = p.scale;
    if (p.softcap > 0) {
      for (int j = 0; j < n * VECS; ++j) store(s.scores + j * LANES, capped(load(s.scores + j * LANES) * factor, p.softcap));
      factor = 1.0f;
    }
    const int32_t* kpos = &w.position[b * p.key_length];
    if (RULE != CAUSAL || kpos[list[n - 1]] > t.first_position || t.last_position - kpos[list[0]] >= p.reach)
      mask<RULE>(w, b, list, n, s.scores, t);
    softmax(n, factor, s, t);
    multiply_values((const uint16_t*)s.values + from, n, s.size, s.weights, t.acc);
  }

 private:
  // With zeros up to a multiple of 32.
  static void copy(const uint16_t* from, int64_t size, uint16_t* to) {
    for (int64_t d = 0; d < size; d += DEPTH) {
      const __mmask32 inside = size - d >= DEPTH ? ~0u : (1u << (size - d)) - 1;
      _mm512_storeu_si512(to + d, _mm512_maskz_loadu_epi16(inside, from + d));
    }
  }

  static __m512i wide(const uint16_t* from, __mmask16 inside) {
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(inside, from));
  }

  // Adds to sums 0 to 3 the product of 32 rows of `left` with 16 pairs of rows of `right`, Q columns.
  static void multiply_add(const uint16_t* left, int64_t stride, const float* right) {
    _tile_loadd(4, left, 2 * stride);
    _tile_loadd(5, left + 16 * stride, 2 * stride);
    _tile_loadd(6, right, 4 * Q);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 5, 6);
    if (VECS == 2) {
      _tile_loadd(7, right + LANES, 4 * Q);
      _tile_dpbf16ps(2, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  }

  // Sums 0 to 3 as 32 rows of Q columns.
  static void store_sums(float* to) {
    _tile_stored(0, to, 4 * Q);
    _tile_stored(1, to + 16 * Q, 4 * Q);
    if (VECS == 2) {
      _tile_stored(2, to + LANES, 4 * Q);
      _tile_stored(3, to + 16 * Q + LANES, 4 * Q);
    }
  }

  // scores (n, Q); rows past n up to a multiple of 32 hold anything.
  static void multiply_keys(const uint16_t* keys, int n, int64_t size, const float* query, float* scores) {
    fence();
    for (int j = 0; j < n; j += 32) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      for (int64_t d = 0; d < size; d += DEPTH) multiply_add(keys + j * size + d, size, query + d / 2 * Q);
      store_sums(scores + j * Q);
    }
    fence();
  }

  template <Rule RULE>
  static void mask(const Work& w, int64_t b, const int32_t* list, int n, float* scores, const Tile<VECS>& t) {
    const FocusProblem& p = *w.p;
    const int32_t *kpos = &w.position[b * p.key_length], *low = &w.low[b * p.key_length], *high = &w.high[b * p.key_length];
    const __m512i reach = _mm512_set1_epi32((int32_t)p.reach);
    for (int v = 0; v < VECS; ++v) {
      const __m512i position = _mm512_loadu_si512(t.position + v * LANES);
      const __m512i near = _mm512_loadu_si512(t.near + v * LANES);
      const __m512i qlow = _mm512_loadu_si512(t.low + v * LANES), qhigh = _mm512_loadu_si512(t.high + v * LANES);
      for (int j = 0; j < n; ++j) {
        const int32_t key = list[j];
        const __m512i back = _mm512_sub_epi32(position, _mm512_set1_epi32(kpos[key]));  // as unsigned: huge where it is ahead
        __mmask16 ok = _mm512_cmplt_epu32_mask(back, reach);
        if (RULE != CAUSAL) {
          const __mmask16 shared =
              _mm512_test_epi32_mask(qlow, _mm512_set1_epi32(low[key])) | _mm512_test_epi32_mask(qhigh, _mm512_set1_epi32(high[key]));
          const __mmask16 visible = kpos[key] < p.num_sinks ? ok : _mm512_cmplt_epu32_mask(back, near);
          ok = RULE == LOCAL ? visible & ~shared : ok & (shared | visible);
        }
        float* score = scores + j * Q + v * LANES;
        _mm512_store_ps(score, _mm512_mask_blend_ps(ok, _mm512_set1_ps(NONE), _mm512_load_ps(score)));
      }
    }
  }

  // Turns scores into weights (pairs of keys, Q), with zeros up to a multiple of 32 keys, and scales acc to the new maximum.
  static void softmax(int n, float factor, Scratch& s, Tile<VECS>& t) {
    const __m512 scale = _mm512_set1_ps(factor * LOG2_E);
    __m512 alpha[VECS];
    bool unchanged = true;
    for (int v = 0; v < VECS; ++v) {
      const float* score = s.scores + v * LANES;
      __m512 even = _mm512_set1_ps(NONE), odd = even;
      int j = 0;
      for (; j + 2 <= n; j += 2) {
        even = _mm512_max_ps(_mm512_load_ps(score + j * Q), even);
        odd = _mm512_max_ps(_mm512_load_ps(score + (j + 1) * Q), odd);
      }
      if (j < n) even = _mm512_max_ps(_mm512_load_ps(score + j * Q), even);
      const __m512 old = (__m512)t.m[v], top = _mm512_max_ps(_mm512_mul_ps(_mm512_max_ps(even, odd), _mm512_set1_ps(factor)), old);
      const __mmask16 empty = _mm512_cmp_ps_mask(top, _mm512_set1_ps(NONE), _CMP_EQ_OQ);
      const __m512 base = _mm512_maskz_mul_ps(~empty, top, _mm512_set1_ps(LOG2_E));
      alpha[v] = power_of_two(_mm512_fmsub_ps(old, _mm512_set1_ps(LOG2_E), base));
      unchanged = unchanged && _mm512_cmp_ps_mask(old, top, _CMP_NEQ_UQ) == 0;
      __m512 first = _mm512_mul_ps((__m512)t.l[v], alpha[v]), second = _mm512_setzero_ps();
      __m512i* weight = (__m512i*)(s.weights + v * LANES);
      for (j = 0; j + 2 <= n; j += 2) {
        const __m512 x = power_of_two(_mm512_fmsub_ps(_mm512_load_ps(score + j * Q), scale, base));
        const __m512 y = power_of_two(_mm512_fmsub_ps(_mm512_load_ps(score + (j + 1) * Q), scale, base));
        first = _mm512_add_ps(first, x), second = _mm512_add_ps(second, y);
        _mm512_store_si512(weight + j / 2 * VECS, pairs(x, y));
      }
      if (j < n) {
        const __m512 x = power_of_two(_mm512_fmsub_ps(_mm512_load_ps(score + j * Q), scale, base));
        first = _mm512_add_ps(first, x);
        _mm512_store_si512(weight + j / 2 * VECS, pairs(x, _mm512_setzero_ps()));
        j += 2;
      }
      for (; j < (n + DEPTH - 1) / DEPTH * DEPTH; j += 2) _mm512_store_si512(weight + j / 2 * VECS, _mm512_setzero_si512());
      t.m[v] = (vf)top;
      t.l[v] = (vf)_mm512_add_ps(first, second);
    }
    if (unchanged) return;
    for (int64_t d = 0; d < s.size; ++d)
      for (int v = 0; v < VECS; ++v)
        _mm512_store_ps(t.acc + d * Q + v * LANES, _mm512_mul_ps(_mm512_load_ps(t.acc + d * Q + v * LANES), alpha[v]));
  }

  // acc[d, q] += sum_j values[d, j] * weights[j, q].
  static void multiply_values(const uint16_t* values, int n, int64_t size, const float* weights, float* acc) {
    fence();
    for (int64_t d = 0; d < size; d += 32) {
      float* sum = acc + d * Q;
      _tile_loadd(0, sum, 4 * Q);
      _tile_loadd(1, sum + 16 * Q, 4 * Q);
      if (VECS == 2) {
        _tile_loadd(2, sum + LANES, 4 * Q);
        _tile_loadd(3, sum + 16 * Q + LANES, 4 * Q);
      }
      for (int j = 0; j < n; j += DEPTH) multiply_add(values + d * WIDTH + j, WIDTH, weights + j / 2 * Q);
      store_sums(sum);
    }
    fence();
  }
};

