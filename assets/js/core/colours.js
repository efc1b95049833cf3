// Colours: group palettes for light and dark, token shades as one generated style sheet, and what charts need of them.
(function () {
  // Okabe–Ito hues; darkened for light pages so that underlines and points reach 3:1, lightened for dark ones.
  const BASE = {
    light: ["#0068ab", "#c77e00", "#00805c", "#b03a80", "#3399d4", "#b83d00", "#3d3900", "#3d4550"],
    dark: ["#4a9fe0", "#e69f00", "#2fbf93", "#e08dbb", "#97d6ff", "#f2683c", "#f0e442", "#7f8a99"],
  };
  const PAGE = { light: "#ffffff", dark: "#0f141c" };
  const TINT = { light: 0.2, dark: 0.3 };
  const GENERATED_LIGHTNESS = { light: [0.33, 0.43], dark: [0.66, 0.76] };
  const GOLDEN_ANGLE = 137.508;
  const MAX_GROUPS = 64;
  const SEQUENTIAL = { light: "#4338ca", dark: "#a5b4fc" };
  const DIVERGING = { light: ["#0068ab", "#c94f00"], dark: ["#4a9fe0", "#f2783c"] };
  const CONFIDENCE_STEPS = 8;
  const LOSS_LIMITS = [-1, -0.5, -0.2, -0.05, 0.05, 0.2, 0.5, 1];
  const NEUTRAL_LOSS = LOSS_LIMITS.length / 2;
  const STYLE_ID = "fx-shades";

  const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const toHex = (rgb) => `#${rgb.map((value) => Math.round(value).toString(16).padStart(2, "0")).join("")}`;

  function mix(colour, ground, amount) {
    const back = channels(ground);
    return toHex(channels(colour).map((value, i) => value * amount + back[i] * (1 - amount)));
  }

  function fromHsl(hue, saturation, lightness) {
    const amplitude = saturation * Math.min(lightness, 1 - lightness);
    const channel = (n) => {
      const k = (n + hue / 30) % 12;
      return 255 * (lightness - amplitude * Math.max(-1, Math.min(k - 3, 9 - k, 1)));
    };
    return toHex([channel(0), channel(8), channel(4)]);
  }

  FX.groupColour = (group, theme) => {
    if (group < BASE[theme].length) return BASE[theme][group];
    const lightness = GENERATED_LIGHTNESS[theme][group % 2];
    return fromHsl((group * GOLDEN_ANGLE) % 360, 0.6, lightness);
  };

  FX.confidenceShade = (confidence, numGroups) => {
    const floor = 1 / numGroups;
    const scaled = numGroups > 1 ? (confidence - floor) / (1 - floor) : 1;
    return `s${Math.max(0, Math.min(CONFIDENCE_STEPS - 1, Math.floor(scaled * CONFIDENCE_STEPS)))}`;
  };

  // A share from 0 to 1 in the same steps.
  FX.shareShade = (share) => `s${Math.max(0, Math.min(CONFIDENCE_STEPS - 1, Math.floor(share * CONFIDENCE_STEPS)))}`;

  FX.lossShade = (difference) => {
    if (difference === null) return "none";
    return `d${LOSS_LIMITS.filter((limit) => difference >= limit).length}`;
  };

  FX.confidenceShades = () => FX.range(CONFIDENCE_STEPS).map((step) => `s${step}`);
  FX.lossShades = () => FX.range(LOSS_LIMITS.length + 1).map((step) => `d${step}`);

  function groupShades(theme) {
    return FX.range(MAX_GROUPS).map((group) => {
      const strong = FX.groupColour(group, theme);
      return [`g${group}`, mix(strong, PAGE[theme], TINT[theme]), strong];
    });
  }

  function confidenceRules(theme) {
    return FX.confidenceShades().map((name, step) => {
      const amount = step / (CONFIDENCE_STEPS - 1);
      const strong = mix(SEQUENTIAL[theme], PAGE[theme], 0.15 + 0.85 * amount);
      return [name, mix(SEQUENTIAL[theme], PAGE[theme], 0.42 * amount), strong];
    });
  }

  function lossRules(theme) {
    return FX.lossShades().map((name, step) => {
      const side = DIVERGING[theme][step < NEUTRAL_LOSS ? 0 : 1];
      const amount = Math.abs(step - NEUTRAL_LOSS) / NEUTRAL_LOSS;
      return [name, mix(side, PAGE[theme], 0.42 * amount), mix(side, PAGE[theme], amount)];
    });
  }

  function styleRules(theme) {
    const prefix = theme === "dark" ? ":is(.dark .fx-root, .fx-root.dark)" : ".fx-root";
    return [...groupShades(theme), ...confidenceRules(theme), ...lossRules(theme)]
      .map(([name, tint, strong]) => `${prefix} [data-shade="${name}"]{--fx-tint:${tint};--fx-strong:${strong}}`)
      .join("\n");
  }

  // Colours hang on one attribute per token, so a change of theme touches no token at all.
  FX.installShades = () => {
    if (document.getElementById(STYLE_ID)) return;
    const style = document.createElement("style");
    style.id = STYLE_ID;
    style.textContent = `${styleRules("light")}\n${styleRules("dark")}`;
    document.head.append(style);
  };

  FX.themeOf = (root) => (root.closest(".dark") ? "dark" : "light");

  FX.cssColour = (root, name) => getComputedStyle(root).getPropertyValue(`--fx-${name}`).trim();

  FX.watchTheme = (root, changed) => {
    let theme = FX.themeOf(root);
    const observer = new MutationObserver(() => {
      if (FX.themeOf(root) === theme) return;
      theme = FX.themeOf(root);
      changed();
    });
    for (let node = root; node; node = node.parentElement) {
      observer.observe(node, { attributes: true, attributeFilter: ["class"] });
    }
    return observer;
  };
})();
