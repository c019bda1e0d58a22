import { mostWeights, type Token } from '../types.ts';
import type { Engine } from './module.ts';

// The tokens of a text that is run while somebody types. What is longer than the model reads is left
// to the engine, which says so.
export function tokensToRun(engine: Engine, text: string): Token[] {
  const tokens = engine.tokenize(text);
  const { num_layers, num_heads, context_length } = engine.sizes;
  if (num_layers * num_heads * tokens.length ** 2 > mostWeights && tokens.length <= context_length) {
    throw new Error(`${tokens.length} tokens are more than a page shows while you type; ` +
                    'cephalo page --recorded writes one of a long text');
  }
  return tokens;
}
