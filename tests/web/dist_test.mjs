// What is committed under web/dist is what its sources make.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { require, root } from './bundle.mjs';

const dist = (name) => readFileSync(join(root, 'web/dist', name));
const named = Object.fromEntries(dist('BUILD').toString().trim().split('\n').map((line) => line.split(' ')));

test('page.html is what esbuild makes of web/src', (t) => {
  const lock = createHash('sha256').update(readFileSync(join(root, 'web/package-lock.json'))).digest('base64');
  if (named.esbuild !== require('esbuild').version || named.lock !== `sha256-${lock}`) {
    return t.skip('another esbuild than that of web/dist/BUILD');
  }
  const out = mkdtempSync(join(tmpdir(), 'cephalo-dist-'));
  execFileSync(process.execPath, [join(root, 'web/build.mjs'), `--out=${out}`]);
  assert.ok(readFileSync(join(out, 'page.html')).equals(dist('page.html')),
            'web/dist/page.html is out of date: node web/build.mjs makes it anew');
});

test('the page has a place for its data and nothing left to fill in', () => {
  const html = dist('page.html').toString();
  assert.equal(html.split('{{data}}').length, 2);
  assert.deepEqual(html.replace('{{data}}', '').match(/\{\{[a-z-]+\}\}/g), null);
  for (const kind of ['script', 'style']) {
    const content = new RegExp(`<${kind}>([\\s\\S]*?)</${kind}>`).exec(html)[1];
    const hash = createHash('sha256').update(content).digest('base64');
    assert.ok(html.includes(`${kind}-src 'sha256-${hash}'`), kind);
  }
});
