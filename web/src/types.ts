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

// What a model made of a text.
export interface Run {
  text: string;
  tokens: Token[];
  heads: Head[];
  predictions: Prediction[];
  weights: Float32Array; // [num_layers, num_heads, tokens, tokens]
  norms: Float32Array; // [num_layers, num_heads, tokens]: ‖v_j W_out^h‖₂
  milliseconds: number; // of the pass
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
  };
  probe: { length: number; draws: number; seed: number; scores: number[] } | null;
}
