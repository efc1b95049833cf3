// Decodes what the server sends (runs and masks) into typed arrays with named accessors. Knows nothing of the page.
(function () {
  function decodeBase64(text) {
    const binary = atob(text);
    const bytes = new Uint8Array(binary.length);
    for (let i = 0; i < binary.length; i += 1) bytes[i] = binary.charCodeAt(i);
    return bytes;
  }

  function expectLength(name, array, expected) {
    if (array.length !== expected) {
      throw new RangeError(`${name} has ${array.length} entries where ${expected} were expected`);
    }
    return array;
  }

  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

  FX.Run = class {
    constructor(payload) {
      this.info = payload.run;
      this.config = payload.run.config;
      this.pieces = payload.pieces;
      this.layerIds = payload.layer_ids;
      this.layers = payload.layers;
      this.groups = payload.groups;
      this.losses = payload.losses;
      this.quality = payload.quality;
      this.timings = payload.timings || [];
      this.numTokens = payload.pieces.length;
      this.numLayers = payload.num_layers;
      this.numGroups = payload.run.config.num_groups;
      this.decode(payload);
    }

    decode(payload) {
      const cells = this.numLayers * this.numTokens;
      this.tops = expectLength("top", decodeBase64(payload.top), cells);
      this.probabilities = expectLength("probabilities", decodeBase64(payload.probabilities), cells * this.numGroups);
      // Pairs of 32-bit words: bit tests on them are far quicker than on BigInt.
      this.members = expectLength("membership", new Uint32Array(decodeBase64(payload.membership).buffer), cells * 2);
    }

    top(layerIndex, pos) {
      return this.tops[layerIndex * this.numTokens + pos];
    }

    belongs(layerIndex, pos, group) {
      const word = (layerIndex * this.numTokens + pos) * 2 + (group >> 5);
      return ((this.members[word] >>> (group & 31)) & 1) === 1;
    }

    groupsOf(layerIndex, pos) {
      const top = this.top(layerIndex, pos);
      const others = FX.range(this.numGroups).filter((group) => group !== top && this.belongs(layerIndex, pos, group));
      return [top, ...others];
    }

    probability(layerIndex, pos, group) {
      return this.probabilities[(layerIndex * this.numTokens + pos) * this.numGroups + group] / 255;
    }

    confidence(layerIndex, pos) {
      return this.probability(layerIndex, pos, this.top(layerIndex, pos));
    }

    lossDifference(pos) {
      const full = this.losses.full[pos];
      const focus = this.losses.focus[pos];
      return full === null || focus === null ? null : focus - full;
    }

    context(pos, reach) {
      return {
        before: this.pieces.slice(Math.max(0, pos - reach), pos).join(""),
        token: this.pieces[pos],
        after: this.pieces.slice(pos + 1, pos + 1 + reach).join(""),
      };
    }

    timing(mode, stage) {
      return this.timings.find((timing) => timing.mode === mode && timing.stage === stage) || null;
    }

    timeRatio(stage) {
      const full = this.timing("full", stage);
      const focus = this.timing("focus", stage);
      return full && focus && full.median > 0 ? focus.median / full.median : null;
    }

    meanKept() {
      return mean(this.layers.map((layer) => layer.retained_pairs));
    }

    meanDominance() {
      return mean(this.layers.map((layer) => layer.dominance));
    }
  };

  FX.Mask = class {
    constructor(answer) {
      this.blockSize = answer.block_size;
      this.numBlocks = answer.num_blocks;
      this.causes = answer.causes;
      this.cells = (answer.num_blocks * (answer.num_blocks + 1)) / 2;
      const words = new Uint32Array(decodeBase64(answer.counts).buffer);
      this.counts = expectLength("counts", words, this.cells * answer.causes.length);
    }

    blockCounts(row, column) {
      const cell = (row * (row + 1)) / 2 + column;
      return this.causes.map((_, cause) => this.counts[cause * this.cells + cell]);
    }

    rowCounts(row) {
      const first = (row * (row + 1)) / 2;
      return this.causes.map((_, cause) => {
        let sum = 0;
        for (let cell = first; cell <= first + row; cell += 1) sum += this.counts[cause * this.cells + cell];
        return sum;
      });
    }

    // Rows of the lower triangle, null above the diagonal; `value` maps the counts of a block to a number.
    matrix(value) {
      return FX.range(this.numBlocks).map((row) =>
        FX.range(this.numBlocks).map((column) => (column > row ? null : value(this.blockCounts(row, column)))),
      );
    }
  };

  const KEPT_ANSWERS = 8;

  // Asks the server once per layer, waits while the slider still moves, and ignores answers that come too late.
  FX.LayerLoader = class {
    constructor(load, handlers) {
      this.load = load;
      this.handlers = handlers;
      this.cache = new Map();
    }

    request(runId, layerId) {
      const key = JSON.stringify([runId, layerId]);
      this.wanted = key;
      clearTimeout(this.timer);
      if (this.cache.has(key)) {
        this.handlers.ready(this.cache.get(key));
        return;
      }
      this.handlers.waiting();
      this.timer = setTimeout(() => this.fetch(key, runId, layerId), 120);
    }

    async fetch(key, runId, layerId) {
      const answer = await FX.ask(() => this.load(runId, layerId));
      if (answer.error === undefined) this.remember(key, answer);
      // A chart must not be drawn into a view that is closed by now; it asks again when it opens.
      if (this.wanted !== key || !this.handlers.open()) return;
      if (answer.error !== undefined) this.handlers.failed(answer.error);
      else this.handlers.ready(answer);
    }

    remember(key, answer) {
      this.cache.set(key, answer);
      if (this.cache.size > KEPT_ANSWERS) this.cache.delete(this.cache.keys().next().value);
    }
  };

  FX.range = (count) => Array.from({ length: count }, (_, i) => i);

  // A failing call becomes the same {error} object the server itself would send.
  FX.ask = async (call) => {
    try {
      const answer = await call();
      return answer || { error: FX.strings.serverSilent("empty") };
    } catch (error) {
      return { error: FX.strings.serverSilent(error.message || String(error)) };
    }
  };
})();
