export type Label = 'previous' | 'induction' | 'duplicate' | 'sink' | 'current' | 'diffuse';

export interface LabelScore {
  label: Label;
  score: number;
}

// null: no row of the text counts for it.
export interface Metrics {
  previous: number | null;
  first: number | null;
  current: number | null;
  duplicate: number | null;
  induction: number | null;
  entropy: number | null;
  effective_tokens: number;
  confidence: number;
  distance: number;
  probe_duplicate?: number;
  probe_induction?: number;
}

export interface Head {
  layer: number;
  head: number;
  labels: LabelScore[];
  metrics: Metrics;
  first_share?: number; // of what it adds: from the first token. Missing: the page works it out
}

// piece: the token's bytes, each as the character that GPT-2's files write for it.
export interface Token {
  id: number;
  piece: string;
}

export interface Prediction extends Token {
  probability: number;
}

export interface Sizes {
  num_layers: number;
  num_heads: number;
  head_dim: number;
  d_model: number;
  context_length: number;
  vocab_size: number;
}

// Which head of a model.
export interface Place {
  layer: number;
  head: number;
}

// What a model made of a text.
export interface Run {
  text: string;
  tokens: Token[];
  heads: Head[];
  predictions: Prediction[];
  opening: Place; // the head to open with
  weights: Float32Array; // [num_layers, num_heads, tokens, tokens]
  norms: Float32Array; // [num_layers, num_heads, tokens]: ‖v_j W_out^h‖₂
  begun: number; // of the pass, in milliseconds since 1970
  milliseconds: number; // of the pass
  pooled?: Pooled; // in place of weights, which are then empty: there are too many
}

// That a page has at once, as in cephalo/view/page_parts.h: 512 tokens in 4 layers of 8 heads. Above, maps are pooled.
export const mostWeights = 2 ** 23;

export interface Tiles {
  cells: number; // on each side
  tiles: Uint8Array; // [heads, cells · (cells + 1) / 2]: 255 · √(largest weight of the cell)
}

// Maps seen from afar; rows are asked for one by one.
export interface Pooled extends Tiles {
  last: Float32Array; // [heads, tokens]: the last token's weights
  small: Tiles; // for thumbnails
}

// The weights of one token in a head, or over the heads of a layer.
export interface Row {
  layer: number;
  head: number;
  over: 'mean' | 'max' | null;
  query: number;
  key: number | null; // where a block was asked for: the strongest pair in it
  values: Float32Array;
}

// What one weight comes from.
export interface Pair {
  layer: number;
  head: number;
  query: number;
  key: number;
  q: Float32Array;
  k: Float32Array;
}

export type OffMeans = 'zero' | 'mean' | 'even';

// A head that does not do as it was trained to.
export interface HeadSwitch {
  layer: number;
  head: number;
  scaled: boolean; // by 1 / √head_dim
  temperature: number;
  keys: number; // 0: causal; −1: all; n: the last n, its own among them
  off: OffMeans | null;
}

export interface SwitchReport {
  predictions: Prediction[]; // the likeliest under the switches
  trained: Prediction[]; // the trained model’s, as likely as they are under the switches
  divergence: number; // of the next token, in nats
}

// What became of a text under switches.
export interface Switched extends SwitchReport {
  layer: number;
  weights: Float32Array; // [num_heads, tokens, tokens], of this layer
  changes: Float32Array; // [tokens, 2]: how far a prediction moved in nats, change of ln P of the next
}

// One step of cephalo trace, with the numbers of one head.
export interface Step {
  number: string;
  name: string;
  key: string;
  formula: string;
  shape: number[];
  note: string;
  what: string;
  why: string;
  effect: string;
  head_shape: number[];
  values: Float32Array;
}

export interface Steps {
  layer: number;
  head: number;
  steps: Step[];
}

// What the program wrote into the page.
export interface PageData {
  version: number;
  text: string;
  model: {
    name: string;
    parameters: string; // the first digits of their checksum
    dtype: string; // as stored
    untrained: boolean;
    trained_context_length?: number | null;
  };
  probe: { length: number; draws: number; seed: number; scores?: number[] } | null;
  recorded?: Recorded; // one text, as it was seen; without it, the page runs the model
}

export interface Recorded {
  sizes: Sizes;
  tokens: Token[];
  heads: Head[];
  predictions: Prediction[];
  opening: Place; // the head to open with
  full: number[] | null; // heads whose every weight is there; null: all of them
  strongest: number; // keys that were kept of each row of the others
}
