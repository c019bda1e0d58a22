// What is said about a head, in words.
import { percent } from './format.ts';
import { chosenHead, firstTokenShare } from './select.ts';
import type { State } from './state.ts';
import type { Label } from './types.ts';

export const labels: Label[] = ['previous', 'induction', 'duplicate', 'current', 'sink', 'diffuse'];
export const letter: Record<Label, string> = {
  previous: 'P', induction: 'I', duplicate: '=', sink: 'S', current: 'C', diffuse: '≈',
};
export const does: Record<Label, string> = {
  previous: 'looks at the token before',
  induction: 'looks at what followed this token last time',
  duplicate: 'looks at the same token, earlier',
  sink: 'rests on the first token',
  current: 'looks at itself',
  diffuse: 'looks at everything equally',
};

export const noLayer = 'The mean and the maximum of a layer need all of its heads in full; this recording does not keep them.';

export interface Saying {
  headline: string;
  sentence: string;
}

export function sayLayer(s: State): Saying {
  const heads = `${s.sizes!.num_heads} heads of layer ${s.layer}`;
  return s.over === 'max'
    ? { headline: 'The strongest look of any head',
        sentence: `Each cell: the largest weight among the ${heads}. Rows do not sum to 1.` }
    : { headline: 'What this layer looks at, on average',
        sentence: `Each cell: the mean weight of the ${heads}.` };
}

// Induction beats sink: sink is what such a head does when idle.
export function sayHead(s: State): Saying {
  if (s.over) return sayLayer(s);
  const { labels: found, metrics } = chosenHead(s);
  const score = (label: Label) => found.find((l) => l.label === label)?.score;
  const induction = score('induction');
  if (induction !== undefined) {
    const here = metrics.induction === null ? '; nothing repeats here'
                                            : `, ${percent(metrics.induction)} here`;
    return {
      headline: 'Looks at what followed this token last time',
      sentence: `${percent(induction)} of its attention on random repeats${here}.` +
        (score('sink') !== undefined ? ' Else it rests on the first token.' : ''),
    };
  }
  const previous = score('previous');
  if (previous !== undefined) {
    return { headline: 'Looks at the token before',
             sentence: `${percent(previous)} of its attention, on average over this text, goes ` +
                       'one step back.' };
  }
  const duplicate = score('duplicate');
  if (duplicate !== undefined) {
    const here = metrics.duplicate === null ? '; nothing repeats here'
                                            : `, ${percent(metrics.duplicate)} here`;
    return { headline: 'Looks at the same token, earlier',
             sentence: `${percent(duplicate)} of its attention on random repeats${here}.` };
  }
  const current = score('current');
  if (current !== undefined) {
    return { headline: 'Looks at itself',
             sentence: `${percent(current)} of its attention stays on the token itself.` };
  }
  return sayResting(s, score('sink'), score('diffuse'));
}

function sayResting(s: State, sink?: number, diffuse?: number): Saying {
  const { metrics } = chosenHead(s);
  const over = `over ${metrics.effective_tokens.toFixed(1)} tokens on average`;
  if (sink !== undefined) {
    const share = firstTokenShare(s);
    return { headline: 'Rests on the first token',
             sentence: `${percent(sink)} of its attention, ${sink - share > 0.1 ? 'but only' : 'and'} ` +
                       `${percent(share)} of what it adds. With nothing to look for, the weight ` +
                       'must still go somewhere.' };
  }
  if (diffuse !== undefined) {
    return { headline: 'Looks at everything equally',
             sentence: `Its attention is ${percent(diffuse)} as even as it could be, ${over}.` };
  }
  const near: [string, number][] = [['the first token', metrics.first ?? 0],
                                    ['the token before', metrics.previous ?? 0],
                                    ['itself', metrics.current ?? 0]];
  near.sort((a, b) => b[1] - a[1]);
  return { headline: 'No simple pattern',
           sentence: s.run!.tokens.length < 2 ? 'One token has nothing to choose from.'
             : `Nearest: ${percent(near[0]![1])} on ${near[0]![0]}. Spread ${over}.` };
}
