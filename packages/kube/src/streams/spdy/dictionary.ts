/** Words of the SPDY/3 header dictionary, in the order the protocol fixes. */
const words = [
  ..."options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges".split(
    " ",
  ),
  ..."age allow authorization cache-control connection content-base content-encoding content-language".split(" "),
  ..."content-length content-location content-md5 content-range content-type date etag expect expires from".split(" "),
  ..."host if-match if-modified-since if-none-match if-range if-unmodified-since last-modified location".split(" "),
  ..."max-forwards pragma proxy-authenticate proxy-authorization range referer retry-after server te trailer".split(
    " ",
  ),
  ..."transfer-encoding upgrade user-agent vary via warning www-authenticate method get status".split(" "),
  "200 OK",
  ..."version HTTP/1.1 url public set-cookie keep-alive origin".split(" "),
];

/** The dictionary's unframed end: status codes, dates and media types. */
const tail =
  "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505" +
  "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized" +
  "403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable" +
  "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT" +
  "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain," +
  "text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

function framedWord(word: string): Buffer {
  const bytes = Buffer.from(word, "latin1");
  const framed = Buffer.alloc(4 + bytes.length);
  framed.writeUInt32BE(bytes.length, 0);
  bytes.copy(framed, 4);
  return framed;
}

/** The zlib dictionary with which both ends of a SPDY/3.1 connection prime their header compression. */
export const spdyDictionary: Buffer = Buffer.concat([...words.map(framedWord), Buffer.from(tail, "latin1")]);

/** Adler-32 of `spdyDictionary`: the dictionary id that the zlib header names. */
export const spdyDictionaryId = 0xe3c6a7c2;
