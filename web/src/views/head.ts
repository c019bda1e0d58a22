// The chosen head: headline, labels, tabs and the view that is open.
import type { Actions } from '../actions.ts';
import { context } from '../canvas.ts';
import { css, signColour, weightColour } from '../colour.ts';
import { h, type Node_ } from '../dom.ts';
import { score } from '../format.ts';
import { chosenHead, counts, isByValue, isChanged, isOff, shareOf, shownWeights, spread } from '../select.ts';
import { isDark, isPhone, isPooled, isRecorded, isTooLong, type State, type Tab } from '../state.ts';
import { poolingOf } from '../tiles.ts';
import { letter, sayHead } from '../words.ts';
import { compare, showsDifference } from './compare.ts';
import { drop } from './drop.ts';
import { exportMenu } from './export_menu.ts';
import { icon } from './icons.ts';
import { lines } from './lines.ts';
import { long, stepsNote } from './long.ts';
import { cellSize, matrix, type Beside } from './matrix.ts';
import { question, restsOnFirst } from './sinks.ts';
import { parts, steps } from './steps.ts';
import { effectLine, whatIfBar } from './whatif.ts';
import { offMap, whatIfMaps } from './whatif_maps.ts';

const tabs: [Tab, string][] = [['matrix', 'Matrix'], ['lines', 'Lines'], ['steps', 'Steps'],
                               ['compare', 'Compare']];

function heading(s: State, a: Actions): Node_[] {
  const { headline, sentence } = sayHead(s);
  const found = s.over ? [] : chosenHead(s).labels;
  return [
    h('div', { class: 'hd1' },
      h('button', { class: 'nav', 'aria-label': 'Previous head', title: 'Previous head  [', onclick: () => a.moveHead(-1) }, icon('before')),
      h('span', { class: 'nm' }, `Layer ${s.layer} · ${s.over ? `${s.sizes!.num_heads} heads` : `Head ${s.head}`}`),
      h('button', { class: 'nav', 'aria-label': 'Next head', title: 'Next head  ]', onclick: () => a.moveHead(1) }, icon('after')),
      h('span', { class: 'grow' }),
      s.over && h('span', { class: 'seg', role: 'group', 'aria-label': 'Over the heads of the layer' }, (['mean', 'max'] as const).map((kind) =>
        h('button', { 'aria-pressed': String(s.over === kind), onclick: () => a.setOver(kind) }, kind))),
      found.map((l) => h('button', { class: 'pill', 'data-why': l.label, 'aria-pressed': String(s.why === l.label),
                                     title: 'Outline the cells that count', onclick: () => a.setWhy(l.label) },
        h('span', { class: 'bd', 'aria-hidden': 'true' }, letter[l.label]),
        h('span', { class: found.length > 1 ? 'pn' : '' }, l.label), ' ', h('b', null, score(l.score))))),
    h('h1', { class: 'say', id: 'headline' }, headline),
    h('p', { class: 'sub' }, h('span', { id: 'sentence' }, sentence), ' ',
      restsOnFirst(s) && h('button', { class: 'ask', id: 'sinks', onclick: () => a.openDialog('sinks') }, question)),
    effectLine(s),
  ];
}

function tabBar(s: State, a: Actions): Node_ {
  return h('div', { class: 'tabs' },
    h('div', { role: 'tablist', 'aria-label': 'Views of this head', class: 'tablist' }, tabs.map(([tab, name]) =>
      h('button', { role: 'tab', id: `tab-${tab}`, 'aria-selected': String(s.tab === tab), 'aria-controls': 'view',
                    tabindex: s.tab === tab ? 0 : -1, disabled: s.over !== null && tab === 'steps',
                    onclick: () => a.setTab(tab) }, name))),
    h('span', { class: 'grow' }),
    drop(s, a, 'display', { props: { class: 'tb' }, shows: 'Display' }, () => displayMenu(s, a)),
    drop(s, a, 'export', { props: { class: 'tb' }, shows: 'Export' }, () => exportMenu(s, a)));
}

function displayMenu(s: State, a: Actions): Node_ {
  const option = (on: boolean, name: string, choose: () => void) =>
    h('button', { 'aria-pressed': String(on), onclick: choose }, name);
  return h('div', { class: 'pop', role: 'group', 'aria-label': 'Display' },
    h('div', null, 'Colour', h('span', { class: 'seg' },
      option(s.scale === 'fixed', '0–1', () => a.setScale('fixed')),
      option(s.scale === 'row', 'row max', () => a.setScale('row')),
      option(s.scale === 'log', 'log', () => a.setScale('log')))),
    !isPooled(s) && h('div', null, 'Weigh by value', h('span', { class: 'seg' },
      option(!s.byValue, 'off', () => a.setByValue(false)), option(s.byValue, 'on', () => a.setByValue(true)))),
    !isPooled(s) && h('div', null, 'Spread of each row', h('span', { class: 'seg' },
      option(!s.spread, 'off', () => a.setSpread(false)), option(s.spread, 'on', () => a.setSpread(true)))),
    h('p', { class: 'note' }, isTooLong(s) ? 'Maps of a long text were made from the weights alone, so they cannot be weighed by value.'
      : isPooled(s) ? 'This recording does not keep every head in full, so its maps cannot be weighed by value.'
      : 'By value: a weight counts as much as it moves the output. Resting places fade. ' +
      'Spread: a bar as long as the row is even, and over how many tokens it goes.'));
}

// Over how many tokens each row goes, and how much of what it could that is: the entropy in words.
function spreadBeside(s: State, weights: Float32Array): Beside {
  const count = s.run!.tokens.length;
  return { width: 96, heading: 'spread over', row: (i) => {
    const tokens = spread(weights.subarray(i * count, (i + 1) * count));
    return { share: i === 0 ? 0 : Math.log(tokens) / Math.log(i + 1), value: tokens, text: tokens.toFixed(1) };
  } };
}

function matrixTab(s: State, a: Actions): Node_ {
  const weights = shownWeights(s);
  const dark = isDark(s);
  const share = shareOf(s, weights);
  if (isOff(s)) return offMap(s, a, share);
  if (isChanged(s)) return whatIfMaps(s, a, share);
  const labelWidth = isPhone(s) ? 70 : 78;
  const beside = s.spread && s.over !== 'max' ? spreadBeside(s, weights) : null;
  const cell = cellSize(s, { width: s.view.width - labelWidth - 2 - (beside?.width ?? 0),
                             height: isPhone(s) ? 100000 : s.view.height - 8 - 26 - 54 - 4 });
  const why = s.why;
  return matrix(s, a, { values: weights, cell, labelWidth, causal: true, numbers: true,
                        colour: (w, i) => weightColour(share(w, i), dark),
                        ...(beside ? { beside } : {}),
                        ...(why ? { outlined: (i: number, j: number) => counts(s.run!, why, i, j) } : {}) });
}

function scaleBar(s: State, kind: 'weight' | 'sign', short = false): Node_ {
  return h('canvas', { class: short ? 'bar-of-colours short' : 'bar-of-colours', 'aria-hidden': 'true', after: (canvas: HTMLCanvasElement) => {
    const to = context(canvas, 96, 8);
    for (let n = 0; n < 96; ++n) {
      to.fillStyle = css(kind === 'weight' ? weightColour(n / 95, isDark(s)) : signColour(n / 47.5 - 1, isDark(s)));
      to.fillRect(n, 0, 1.5, 8);
    }
  } });
}

function legend(s: State): Node_ {
  const key = s.tab === 'steps' ? parts[s.step]!.key : 'weights';
  const strips = ['x', 'q_heads', 'context_heads', 'output'].includes(key);
  const crowded = s.tab === 'matrix' && (isPooled(s) || s.run!.tokens.length > s.view.height - 92 || isChanged(s));
  const caption = s.tab === 'lines' ? `Thicker = more weight. ${isPooled(s) ? 'The strongest keys of one token.' : 'Under 0.04 not drawn.'}`
    : strips ? 'row = token, column = dimension' : crowded ? 'row = query, column = key' : 'row = query, looks at → column = key';
  const pooled = isPooled(s) ? poolingOf(s.run!) && `${s.over === 'mean' ? 'each cell: mean over heads of the ' : 'each cell: '}${poolingOf(s.run!)}`
    : s.run!.tokens.length > s.view.height - 92 && 'each pixel: the largest in it';
  const signed = (s.tab === 'compare' && showsDifference(s)) || (s.tab === 'steps' && key !== 'weights');
  const both = s.tab === 'matrix' && isChanged(s) && !isOff(s);
  const named = { fixed: '', row: '(of the row’s largest)', log: '(log)' }[s.scale];
  const uncaptioned = both && s.byValue && named !== ''; // no room: the axes say it too
  return h('div', { class: 'legend', id: 'legend' }, !uncaptioned && h('span', null, caption), s.tab === 'matrix' && pooled && h('span', { id: 'pooling' }, pooled),
    h('span', { class: 'grow' }),
    s.tab !== 'lines' && [h('span', null, signed ? '−' : '0'), scaleBar(s, signed ? 'sign' : 'weight', both), h('span', null, signed ? '+' : '1'),
      s.tab === 'matrix' && named && h('span', null, named)],
    s.byValue && ['matrix', 'lines'].includes(s.tab) && h('span', { id: 'by-value' }, isByValue(s) ? 'by value' : 'not by value'),
    both && [h('span', { class: 'second' }, '−1'), scaleBar(s, 'sign', true), h('span', null, '+1')],
    s.tab !== 'lines' && !strips && key !== 'scores' && [h('span', { class: 'hx', 'aria-hidden': 'true' }), h('span', null, 'hidden')]);
}

function beyondTraining(s: State): string | null {
  const trained = s.data.model.trained_context_length;
  const count = s.run?.tokens.length ?? 0;
  return trained && count > trained
    ? `Beyond what the model was trained on: ${count} tokens, trained on ${trained} at a time.` : null;
}

// Amber, always in the same place: what is not as it should be.
function banner(s: State): Node_ | null {
  const said = s.error ?? (s.data.model.untrained
    ? 'Untrained weights: these parameters are as they were drawn, so the patterns mean nothing.' : beyondTraining(s));
  return said ? h('div', { class: 'bar', role: 'status', id: 'banner' }, h('span', null, said)) : null;
}

export function head(s: State, a: Actions): Node_[] {
  if (!s.run || !s.sizes) return [banner(s) ?? h('p', { class: 'note' }, '')];
  // Before the room for it was measured there is nothing to draw.
  const shown = s.view.width === 0 ? []
    : s.tab === 'steps' && isRecorded(s) ? [h('p', { class: 'sub', id: 'no-steps' }, stepsNote)]
    : s.tab === 'compare' ? compare(s, a)
    : isPooled(s) ? [long(s, a)]
    : s.tab === 'steps' && !s.over ? steps(s, a)
    : [s.tab === 'lines' ? lines(s, a) : matrixTab(s, a)];
  return [...heading(s, a), banner(s) ?? h('div', { class: 'no-bar' }), whatIfBar(s, a) ?? h('div', { class: 'no-bar' }), tabBar(s, a),
    h('div', { class: 'view', id: 'view', role: 'tabpanel', 'aria-labelledby': `tab-${s.tab}` }, shown,
      h('span', { class: 'grow' }), s.tab === 'steps' && isRecorded(s) ? h('div', null) : legend(s))];
}
