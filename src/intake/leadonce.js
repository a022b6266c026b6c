// Sends a form once, however often it is pressed or the network fails. Without this script the form's plain POST works.
// <form action="…/v1/intake/SOURCE" method="post" data-thanks="/thanks" data-volatile="page_time">
// Events on the form: leadonce:done, leadonce:failed; preventDefault() keeps the script from what it would do next.
(() => {
  // Where sessionStorage is switched off, ids live as long as the page.
  let kept = {};
  try { kept = sessionStorage; } catch {}

  const uuid7 = () => {
    const time = [...Date.now().toString(16).padStart(12, 0)];
    return 'xxxxxxxx-xxxx-7xxx-8xxx-xxxxxxxxxxxx'.replace(/x/g, () =>
      time.shift() || (crypto.getRandomValues(new Uint8Array(1))[0] & 15).toString(16));
  };

  // Every try bears the same id, so the gateway makes one lead of them. Nothing here needs a preflight.
  const send = async (action, body, tried = 1) => {
    const r = await fetch(action, { method: 'POST', body, credentials: 'omit' }).catch(() => ({ status: 0 }));
    if (tried > 5 || ![0, 429, 503].includes(r.status)) return r;
    const told = r.headers?.get('Retry-After') * 1e3 || 0;
    await new Promise(next => setTimeout(next, Math.min(told + 2 ** tried * (400 + Math.random() * 200), 3e4)));
    return send(action, body, tried + 1);
  };

  addEventListener('submit', async event => {
    const form = event.target, action = form.getAttribute('action'), button = event.submitter || {};
    const { leadonce, thanks, volatile = '' } = form.dataset;
    if (event.defaultPrevented || leadonce == null && !/\/v1\/intake\//.test(action)) return;
    event.preventDefault();
    if (form._sending) return;
    // A file input that was left empty is not sent. The button's own name and value are, as long as it is not disabled.
    const fields = [...new FormData(form, event.submitter)].filter(([n, v]) => n != '_submission_id' && v.name !== '');
    form._sending = button.disabled = true;

    // What the visitor filled in, as a short sum: the content itself is not kept in the browser.
    const text = JSON.stringify(fields.map(([n, v]) => volatile.split(' ').includes(n) || [n, v.name || v, v.size, v.lastModified]));
    const sum = [...text].reduce((h, c) => Math.imul(h ^ c.codePointAt(), 16777619), 0);
    // The same content keeps its id until success, after a reload too, and two minutes more: pressing again, or going back and
    // pressing, is no new enquiry. Changed content is another submission.
    const key = ['leadonce', location.pathname, action, [...document.forms].indexOf(form)];
    const [was, last, end] = (kept[key] || '').split(',');
    const id = was == sum && !(end < Date.now()) ? last : uuid7();
    const keep = more => { try { kept[key] = [sum, id] + more; } catch {} };
    keep('');

    fields.push(['_submission_id', id]);
    const body = fields.some(([, v]) => v.name) ? new FormData() : new URLSearchParams();
    fields.forEach(([n, v]) => body.append(n, v));
    const r = await send(action, body), ok = r.ok;
    if (ok) keep(',' + (Date.now() + 12e4));
    const detail = ok ? await r.json().catch(() => ({})) : { status: r.status }, to = thanks || detail.thank_you_url;
    const go = form.dispatchEvent(new CustomEvent('leadonce:' + (ok ? 'done' : 'failed'), { bubbles: true, cancelable: true, detail }));
    if (go && ok && to) location = to;
    if (go && !ok) {
      // The last resort is the form's own way, with the same id: had a try arrived unseen, this is its replay.
      form.prepend(Object.assign(document.createElement('input'), { type: 'hidden', name: '_submission_id', value: id }));
      HTMLFormElement.prototype.submit.call(form);
    }
    form._sending = button.disabled = false;
  });
})();
