// Byte-level byte-pair encoding, as in GPT-2 and in the book's own tokenizer. This module has no imports.

// Splits text into words, numbers, other characters and white space, each with the space before it, as Hugging
// Face's ByteLevel does.
const SPLIT =
  /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;

/** Returns the 256 printable characters that represent bytes in the vocabulary. */
function byteAlphabet() {
  const printable = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(printable(byte) ? byte : next++));
}

export class Tokenizer {
  /** pieces: the vocabulary in the order of its ids. merges: pairs of pieces, in the order in which they were
   *  learned, or as one text. special: {text: id}. digits: whether every digit is a token of its own. */
  constructor({ pieces, merges, special, digits = false }) {
    this.digits = digits;
    this.alphabet = byteAlphabet();
    this.byteOf = new Map(this.alphabet.map((character, byte) => [character, byte]));
    this.pieces = pieces;
    this.ids = new Map(pieces.map((piece, id) => [piece, id]));
    this.ranks = new Map(merges.map((pair, rank) => [[pair].flat().join(" "), rank]));
    this.special = new Map(Object.entries(special));
  }

  /** Returns the ids of a text. Special tokens are recognized; no token is added at the start. */
  encode(text) {
    const names = [...this.special.keys()].map((name) => name.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"));
    const parts = names.length ? text.split(new RegExp(`(${names.join("|")})`)) : [text];
    return parts.flatMap((part) =>
      this.special.has(part) ? [this.special.get(part)] : this.encodePlain(part),
    );
  }

  /** Returns the ids of a text in which the names of special tokens are plain text. */
  encodePlain(text) {
    const parts = this.digits ? text.split(/(\p{N})/u) : [text];
    return parts.flatMap((part) => this.#words(part));
  }

  #words(text) {
    return (text.match(SPLIT) ?? []).flatMap((word) => {
      const bytes = new TextEncoder().encode(word);
      return this.#merge(Array.from(bytes, (byte) => this.alphabet[byte])).map((piece) =>
        this.ids.get(piece),
      );
    });
  }

  /** Merges the pair that was learned earliest, everywhere, until no known pair remains. */
  #merge(word) {
    for (;;) {
      const rank = (i) => this.ranks.get(`${word[i]} ${word[i + 1]}`) ?? Infinity;
      let best = 0;
      for (let i = 1; i < word.length - 1; i++) if (rank(i) < rank(best)) best = i;
      if (word.length < 2 || rank(best) === Infinity) return word;
      const [left, right] = [word[best], word[best + 1]],
        joined = [];
      for (let i = 0; i < word.length; i++)
        joined.push(word[i] === left && word[i + 1] === right ? word[i] + word[++i] : word[i]);
      word = joined;
    }
  }

  /** Returns the text of ids; bytes that do not form a character become �. */
  decode(ids) {
    const bytes = ids.flatMap((id) => Array.from(this.pieces[id], (character) => this.byteOf.get(character)));
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes));
  }
}
