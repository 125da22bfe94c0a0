/* Loops over the records of batches, for Python: check, decode to columns, encode, compact.
 *
 * Each function of the table in `__init__.py` works on memory of the caller. None allocates, keeps state, or needs a
 * library, so that one file serves every Python and every C library. The format is drawn in
 * `protocol/batches/records.py`; what is valid is decided by the reference in Python, which accepts the same records.
 *
 * Bytes that came from others are read through a `Cursor`, which knows their end: a read beyond it fails, and a failed
 * read leaves the cursor at its end. Numbers of records are of the caller, who has compared them with the bytes.
 */
#include <stdbool.h>
#include <stdint.h>

#ifndef SOURCE_HASH
#define SOURCE_HASH ""
#endif
#define EXPORTED __attribute__((visibility("default")))

typedef uint8_t byte;
_Static_assert(sizeof(void *) == 8, "addresses have 64 bits in the tables that Python fills");

enum { INVALID = -1, MIN_RECORD_BYTES = 7, MOST_INT_BYTES = 5, MOST_LONG_BYTES = 10 };
/* A batch's header: places and flags (`protocol/batches/record_batch.py`). */
enum { HEADER_SIZE = 61, LENGTH_OVERHEAD = 12, MAGIC = 2 };
enum { LENGTH = 8, MAGIC_AT = 16, CRC = 17, ATTRIBUTES = 21, LAST_DELTA = 23 };
enum { BASE_TIME = 27, MAX_TIME = 35, COUNT = 57 };
enum { CODEC_MASK = 0x07, LOG_APPEND_TIME = 0x08, TRANSACTIONAL = 0x10, CONTROL = 0x20, DELETE_HORIZON = 0x40 };

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static inline uint64_t load_word(const byte *from) {
    uint64_t word;
    __builtin_memcpy(&word, from, sizeof word);
    return word;
}

static inline int64_t read_int16(const byte *at) { return (int16_t)(at[0] << 8 | at[1]); }

static inline uint32_t read_uint32(const byte *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline int64_t read_int32(const byte *at) { return (int32_t)read_uint32(at); }

static inline int64_t read_int64(const byte *at) {
    return (int64_t)((uint64_t)read_uint32(at) << 32 | read_uint32(at + 4));
}

static void write_int(byte *at, int64_t value, int size) {
    for (int place = size - 1; place >= 0; place--) {
        at[place] = (byte)value;
        value >>= 8;
    }
}

/* Copy bytes between places that do not overlap. A call of the C library's memcpy would need that library. */
static inline void copy(byte *restrict to, const byte *restrict from, int64_t size) {
    while (size >= 16) {
        __builtin_memcpy(to, from, 16);
        to += 16, from += 16, size -= 16;
    }
    if (size >= 8) {
        __builtin_memcpy(to, from, 8);
        to += 8, from += 8, size -= 8;
    }
    for (; size > 0; size--) *to++ = *from++;
}

/* ---- varints ----------------------------------------------------------------------------------------------------- */

typedef struct {
    const byte *at, *end;
} Cursor;

static inline int64_t left(const Cursor *cursor) { return cursor->end - cursor->at; }

static bool fail(Cursor *cursor) {
    cursor->at = cursor->end;
    return false;
}

/* Read a zigzag varint of at most 64 bits. */
static inline bool read_long(Cursor *cursor, int64_t *value) {
    uint64_t raw = 0;
    for (int number = 0; number < MOST_LONG_BYTES; number++) {
        if (cursor->at >= cursor->end) return false;
        byte next = *cursor->at++;
        raw |= (uint64_t)(next & 0x7F) << (7 * number);
        if (next < 0x80) {
            if (number == MOST_LONG_BYTES - 1 && next > 1) return fail(cursor);
            *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return true;
        }
    }
    return fail(cursor);
}

/* Read a zigzag varint of at most 32 bits and five bytes, as Kafka's broker does. */
static inline bool read_int(Cursor *cursor, int64_t *value) {
    const byte *begin = cursor->at;
    if (!read_long(cursor, value)) return false;
    bool fits = cursor->at - begin <= MOST_INT_BYTES && *value >= INT32_MIN && *value <= INT32_MAX;
    return fits || fail(cursor);
}

static inline bool skip(Cursor *cursor, int64_t size) {
    if (size <= 0) return true;
    if (size > left(cursor)) return fail(cursor);
    cursor->at += size;
    return true;
}

static int64_t varint_size(int64_t value) {
    uint64_t rest = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    int64_t size = 1;
    while (rest >>= 7) size++;
    return size;
}

static byte *write_varint(byte *to, int64_t value) {
    uint64_t rest = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    for (; rest > 0x7F; rest >>= 7) *to++ = (byte)(rest | 0x80);
    *to++ = (byte)rest;
    return to;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t timestamp_delta, offset_delta, key_length, value_length;
    const byte *offset_at, *key, *value;
    Cursor headers;
} Record;

/* Read a record without its headers, and move the cursor behind it. Negative lengths are null. */
static inline bool read_record(Cursor *cursor, Record *record) {
    int64_t size;
    if (!read_long(cursor, &size) || size < MIN_RECORD_BYTES - 1 || size > left(cursor)) return false;
    Cursor inside = {cursor->at + 1, cursor->at + size}; /* one byte of attributes, which are unused */
    cursor->at += size;
    if (!read_long(&inside, &record->timestamp_delta)) return false;
    record->offset_at = inside.at;
    if (!read_long(&inside, &record->offset_delta) || !read_long(&inside, &record->key_length)) return false;
    record->key = inside.at;
    if (!skip(&inside, record->key_length) || !read_long(&inside, &record->value_length)) return false;
    record->value = inside.at;
    if (!skip(&inside, record->value_length) || !left(&inside)) return false; /* one byte is the headers' number */
    record->headers = inside;
    return true;
}

/* Move behind a record's headers, whose keys are not null; take their number off `*most`. */
static bool skip_headers(Cursor *cursor, int64_t *most) {
    int64_t count, length;
    if (!read_int(cursor, &count) || count < 0 || count > *most) return false;
    *most -= count;
    while (count-- > 0) {
        if (!read_int(cursor, &length) || length < 0 || !skip(cursor, length)) return false;
        if (!read_int(cursor, &length) || !skip(cursor, length)) return false;
    }
    return true;
}

/* Move behind headers, as a reader does; return their number, or INVALID. */
static int64_t pass_headers(Cursor *cursor) {
    int64_t count, length;
    if (!read_long(cursor, &count) || count < 0 || count > left(cursor) / 2) return INVALID; /* each takes two bytes */
    for (int64_t number = 0; number < count; number++) {
        if (!read_long(cursor, &length) || length < 0 || !skip(cursor, length)) return INVALID;
        if (!read_long(cursor, &length) || !skip(cursor, length)) return INVALID;
    }
    return left(cursor) ? INVALID : count;
}

typedef struct {
    int64_t needs_keys;                  /* 1 if no key may be null */
    int64_t before_max_ms, after_max_ms; /* how far a timestamp other than -1 may be from now; -1 if it may be any */
    int64_t most_headers;                /* of all records together */
} Limits;

/* Check the records of a client's batch, as Kafka's broker does (`record_walk.walk_records`). `records` are its
 * decompressed ones; if null, they follow its header.
 *
 * Return INVALID, or twice the largest timestamp + 1, and 1 more if the offset deltas are 0, 1, 2, ...
 */
EXPORTED int64_t check(const byte *header, const byte *records, int64_t size, int64_t now_ms, const Limits *limits) {
    if (!records) records = header + HEADER_SIZE;
    Cursor cursor = {records, records + size};
    int64_t base_timestamp = read_int64(header + BASE_TIME), count = read_int32(header + COUNT);
    int64_t largest = -1, in_sequence = 1, most_headers = limits->most_headers;
    int64_t earliest = INT64_MIN, latest = INT64_MAX;
    if (limits->before_max_ms >= 0) {
        if (__builtin_sub_overflow(now_ms, limits->before_max_ms, &earliest)) earliest = INT64_MIN;
        if (__builtin_add_overflow(now_ms, limits->after_max_ms, &latest)) latest = INT64_MAX;
    }
    if (count < 0 || count > size / MIN_RECORD_BYTES) return INVALID;
    for (int64_t index = 0; index < count; index++) {
        int64_t length, delta, timestamp, offset_delta, key_length, value_length;
        if (!read_int(&cursor, &length) || length < MIN_RECORD_BYTES - 1 || length > left(&cursor)) return INVALID;
        Cursor inside = {cursor.at + 1, cursor.at + length};
        cursor.at += length;
        if (!read_long(&inside, &delta) || __builtin_add_overflow(base_timestamp, delta, &timestamp)) return INVALID;
        if (timestamp != -1 && (timestamp < earliest || timestamp > latest)) return INVALID;
        if (timestamp > largest) largest = timestamp;
        if (!read_int(&inside, &offset_delta)) return INVALID;
        if (offset_delta != index) in_sequence = 0;
        if (!read_int(&inside, &key_length) || !skip(&inside, key_length)) return INVALID;
        if (limits->needs_keys && key_length < 0) return INVALID;
        if (!read_int(&inside, &value_length) || !skip(&inside, value_length)) return INVALID;
        if (!skip_headers(&inside, &most_headers) || left(&inside)) return INVALID;
    }
    if (left(&cursor) || largest > INT64_MAX / 2 - 1) return INVALID;
    return 2 * (largest + 1) + in_sequence;
}

/* ---- batches to rows --------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t offset, timestamp;
    int64_t key_at, key_end, value_at, value_end; /* places in the records; -1 for null */
    int64_t headers_at;                           /* -1 if there are none */
} Row;

/* Find the keys, values and headers of a batch's records, as a reader does. There is a row for each of `count` records,
 * which fit into their bytes. Return `count`, or INVALID. */
EXPORTED int64_t rows(const byte *data, int64_t size, int64_t count, int64_t base_offset, int64_t base_timestamp,
                      int64_t fixed_timestamp, Row *rows) {
    Cursor cursor = {data, data + size};
    for (int64_t index = 0; index < count; index++) {
        Record record;
        Row *row = &rows[index];
        if (!read_record(&cursor, &record)) return INVALID;
        if (record.offset_delta < INT32_MIN || record.offset_delta > INT32_MAX) return INVALID;
        if (__builtin_add_overflow(base_offset, record.offset_delta, &row->offset)) return INVALID;
        int64_t delta = fixed_timestamp ? 0 : record.timestamp_delta;
        if (__builtin_add_overflow(base_timestamp, delta, &row->timestamp)) return INVALID;
        row->key_at = record.key_length < 0 ? -1 : record.key - data;
        row->key_end = record.key_length < 0 ? -1 : row->key_at + record.key_length;
        row->value_at = record.value_length < 0 ? -1 : record.value - data;
        row->value_end = record.value_length < 0 ? -1 : row->value_at + record.value_length;
        row->headers_at = record.headers.at - data;
        int64_t headers = pass_headers(&record.headers);
        if (headers == INVALID) return INVALID;
        if (!headers) row->headers_at = -1;
    }
    return left(&cursor) ? INVALID : count;
}

/* ---- batches to columns ------------------------------------------------------------------------------------------ */

typedef struct {
    const byte *place;
    int64_t size, record_count, base_offset, base_timestamp;
    int64_t fixed_timestamp; /* 1 if every record has `base_timestamp` */
    int64_t rows_end;        /* written by `decode`: the number of rows up to the end of this batch */
    int64_t first_wanted, first_unwanted;
} Section;

typedef struct {
    int32_t *ends; /* none of the three is set for a column that is not wanted */
    byte *data, *nulls;
} Column;

typedef struct {
    const byte *begin, *end;
} Place;

/* Append a row's bytes, or null for a negative length; return the column's new size. */
static inline int64_t append(const Column *column, int64_t row, int64_t size, const byte *from, int64_t length,
                             int64_t *nulls) {
    if (length < 0) {
        column->nulls[row >> 3] |= (byte)(1 << (row & 7));
        ++*nulls;
    } else {
        copy(column->data + size, from, length);
        size += length;
    }
    column->ends[row + 1] = (int32_t)size;
    return size;
}

/* Decode batches to columns with room for all their rows and bytes; a section's `record_count` fits its bytes. Times
 * are multiplied by `time_factor`, within 64 bits. `headers`, if set, gets the place of each row's headers.
 *
 * `result` gets the numbers of null keys, null values, bytes of keys, bytes of values, headers, bytes of headers.
 * Return the number of rows, or -1 - b if batch b is malformed.
 */
EXPORTED int64_t decode(Section *sections, int64_t section_count, int64_t time_factor, int64_t *offsets,
                        int64_t *timestamps, const Column *keys, const Column *values, Place *headers,
                        int64_t *result) {
    int64_t row = 0, key_size = 0, value_size = 0, null_keys = 0, null_values = 0, header_count = 0, header_bytes = 0;
    const int64_t last_time = INT64_MAX / time_factor;
    for (int64_t number = 0; number < section_count; number++) {
        Section *batch = &sections[number];
        Cursor cursor = {batch->place, batch->place + batch->size};
        for (int64_t index = 0; index < batch->record_count; index++) {
            Record record;
            int64_t offset, time;
            if (!read_record(&cursor, &record)) return -1 - number;
            if (record.offset_delta < INT32_MIN || record.offset_delta > INT32_MAX) return -1 - number;
            if (__builtin_add_overflow(batch->base_offset, record.offset_delta, &offset)) return -1 - number;
            int64_t delta = batch->fixed_timestamp ? 0 : record.timestamp_delta;
            if (__builtin_add_overflow(batch->base_timestamp, delta, &time)) return -1 - number;
            Cursor inside = record.headers;
            int64_t count = pass_headers(&inside);
            if (count == INVALID) return -1 - number;
            if (offset < batch->first_wanted || offset >= batch->first_unwanted) continue;
            if (time_factor > 1) {
                time = time > last_time ? last_time : time < -last_time ? -last_time : time;
                time *= time_factor;
            }
            offsets[row] = offset;
            timestamps[row] = time;
            if (keys->data) key_size = append(keys, row, key_size, record.key, record.key_length, &null_keys);
            if (values->data)
                value_size = append(values, row, value_size, record.value, record.value_length, &null_values);
            if (headers) {
                headers[row] = (Place){record.headers.at, record.headers.end};
                header_count += count;
                header_bytes += left(&record.headers);
            }
            row++;
        }
        if (left(&cursor)) return -1 - number;
        batch->rows_end = row;
    }
    int64_t totals[] = {null_keys, null_values, key_size, value_size, header_count, header_bytes};
    for (int each = 0; each < 6; each++) result[each] = totals[each];
    return row;
}

/* Decode the headers at `places`, which `decode` has found and checked, to columns with room for them. `result` gets
 * the numbers of null values, bytes of keys, bytes of values. Return the number of headers. */
EXPORTED int64_t decode_headers(const Place *places, int64_t rows, int32_t *list_ends, const Column *keys,
                                const Column *values, int64_t *result) {
    int64_t header = 0, key_size = 0, value_size = 0, null_keys = 0, null_values = 0;
    list_ends[0] = 0;
    for (int64_t row = 0; row < rows; row++) {
        Cursor cursor = {places[row].begin, places[row].end};
        int64_t count = 0, length = 0;
        read_long(&cursor, &count);
        while (count-- > 0) {
            read_long(&cursor, &length);
            key_size = append(keys, header, key_size, cursor.at, length, &null_keys);
            skip(&cursor, length);
            read_long(&cursor, &length);
            value_size = append(values, header, value_size, cursor.at, length, &null_values);
            skip(&cursor, length);
            header++;
        }
        list_ends[row + 1] = (int32_t)header;
    }
    result[0] = null_values, result[1] = key_size, result[2] = value_size;
    return header;
}

/* ---- columns to batches ------------------------------------------------------------------------------------------ */

/* A column of Arrow's: row i is the bytes from `ends[i]` to `ends[i + 1]`. */
typedef struct {
    const int32_t *ends; /* null if the column is missing */
    const byte *data;
    const byte *valid; /* null if every row is */
    int64_t first_bit;
} Source;

static inline bool is_valid(const Source *column, int64_t row) {
    int64_t bit = column->first_bit + row;
    return !column->valid || column->valid[bit >> 3] >> (bit & 7) & 1;
}

static inline int64_t length_of(const Source *column, int64_t row) {
    return column->ends && is_valid(column, row) ? (int64_t)column->ends[row + 1] - column->ends[row] : -1;
}

static inline int64_t size_of(int64_t length) { return varint_size(length) + (length > 0 ? length : 0); }

static inline byte *write_bytes(byte *to, const Source *column, int64_t row, int64_t length) {
    to = write_varint(to, length);
    if (length > 0) {
        copy(to, column->data + column->ends[row], length);
        to += length;
    }
    return to;
}

/* Encode as many of `rows[start:]` as fit into `max_bytes`, but at least one; without `rows`, row i is i. `columns` are
 * keys, values, keys of headers, values of headers, the lists of headers, whose `ends` count headers, and encoded
 * headers, instead of these three.
 *
 * Return the number of rows; `result` gets their size, the first timestamp and the largest. If the first row exceeds
 * `room`, the size of `output`, return 0 and its size in `result`.
 */
EXPORTED int64_t encode(const int64_t *rows, int64_t row_count, int64_t start, const int64_t *timestamps,
                        const Source *columns, byte *output, int64_t room, int64_t max_bytes, int64_t *result) {
    const Source *keys = &columns[0], *values = &columns[1], *parts = &columns[2], *lists = &columns[4];
    const Source *encoded = &columns[5];
    int64_t size = 0, count = 0;
    int64_t base_timestamp = start < row_count ? timestamps[rows ? rows[start] : start] : -1, largest = base_timestamp;
    for (int64_t index = start; index < row_count; index++) {
        int64_t row = rows ? rows[index] : index, delta = (int64_t)((uint64_t)timestamps[row] - (uint64_t)base_timestamp);
        int64_t key_length = length_of(keys, row), value_length = length_of(values, row), first = 0, last = 0;
        if (lists->ends && is_valid(lists, row)) first = lists->ends[row], last = lists->ends[row + 1];
        int64_t body = 1 + varint_size(delta) + varint_size(count) + size_of(key_length) + size_of(value_length);
        int64_t encoded_length = length_of(encoded, row);
        body += encoded_length >= 0 ? encoded_length : varint_size(last - first);
        for (int64_t header = first; header < last; header++)
            for (int part = 0; part < 2; part++) body += size_of(length_of(&parts[part], header));
        int64_t needed = size + varint_size(body) + body;
        if (count && needed > max_bytes) break;
        if (needed > room) {
            if (count) break;
            result[0] = needed;
            return 0;
        }
        byte *to = write_varint(output + size, body);
        *to++ = 0;
        to = write_varint(to, delta);
        to = write_varint(to, count);
        to = write_bytes(to, keys, row, key_length);
        to = write_bytes(to, values, row, value_length);
        if (encoded_length >= 0)
            copy(to, encoded->data + encoded->ends[row], encoded_length);
        else
            to = write_varint(to, last - first);
        for (int64_t header = first; header < last; header++)
            for (int part = 0; part < 2; part++)
                to = write_bytes(to, &parts[part], header, length_of(&parts[part], header));
        size = needed;
        count++;
        if (timestamps[row] > largest) largest = timestamps[row];
    }
    result[0] = size, result[1] = base_timestamp, result[2] = largest;
    return count;
}

/* Write each key's partition: Kafka's `Utils.murmur2`, made positive, modulo the count; -1 for null. */
EXPORTED void murmur2(const Source *keys, int64_t row_count, int64_t partition_count, int32_t *partitions) {
    const uint32_t mix = 0x5BD1E995;
    for (int64_t row = 0; row < row_count; row++) {
        int64_t length = length_of(keys, row);
        if (length < 0) {
            partitions[row] = -1;
            continue;
        }
        const byte *at = keys->data + keys->ends[row], *words_end = at + (length & ~(int64_t)3);
        uint32_t state = 0x9747B28C ^ (uint32_t)length;
        for (; at < words_end; at += 4) {
            uint32_t word = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
            word *= mix;
            state = state * mix ^ (word ^ word >> 24) * mix;
        }
        if (length & 3) {
            for (int number = 0; number < (length & 3); number++) state ^= (uint32_t)at[number] << (8 * number);
            state *= mix;
        }
        state = (state ^ state >> 13) * mix;
        state ^= state >> 15;
        partitions[row] = (int32_t)((state & 0x7FFFFFFF) % (uint32_t)partition_count);
    }
}

/* ---- compaction -------------------------------------------------------------------------------------------------- */

/* `broker/log/cleaner/record_filter.py` has the rules, and applies them in Python. For each buffer of batches:
 *
 *   find_batches    one Batch for each whole batch
 *   index_keys      one Slot for each key, with its last offset
 *   keep_records    the batches that stay, and one Kept for each of them
 */
typedef struct {
    const byte *place;
    int64_t size; /* with the header */
    int64_t crc, record_count, base_offset, last_offset;
    int64_t base_timestamp; /* of every record, with `has_fixed_timestamp` */
    int64_t has_fixed_timestamp, max_timestamp;
    int64_t horizon;    /* of deletes: 0 none, 1 in the future, 2 passed */
    int64_t is_other;   /* 1 if compressed, transactional, control or empty: the caller's part */
    int64_t keep_empty; /* 1 if it stays also without records: set by the caller */
} Batch;

typedef struct {
    int64_t base_offset, last_offset, size, record_count, max_timestamp;
    int64_t is_changed; /* 1 if the caller must write a new checksum */
    int64_t has_new_horizon;
} Kept;

typedef struct {
    uint64_t first, second; /* the digest of a key; `first` is 0 in a free slot */
    int64_t offset;
} Slot;

typedef struct {
    int64_t count, size, latest_offset;
} Totals;

enum { DONE = -1, FULL = -2 };

static const int64_t TIMESTAMP_BOUND = (int64_t)1 << 62; /* so that differences fit into 64 bits */

static inline uint64_t rotate(uint64_t word, int bits) { return word << bits | word >> (64 - bits); }

static inline void sip_round(uint64_t v[4]) {
    v[0] += v[1], v[1] = rotate(v[1], 13) ^ v[0], v[0] = rotate(v[0], 32);
    v[2] += v[3], v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3], v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1], v[1] = rotate(v[1], 17) ^ v[2], v[2] = rotate(v[2], 32);
}

/* SipHash-2-4 with 128 bits (Aumasson and Bernstein, 2012), keyed with `secret`, so that no client can choose keys
 * whose digests are equal. Words are in native order. */
static void hash(const byte *data, int64_t size, const uint64_t *secret, uint64_t *words) {
    uint64_t v[4] = {
        secret[0] ^ 0x736F6D6570736575,
        secret[1] ^ 0x646F72616E646F6D ^ 0xEE,
        secret[0] ^ 0x6C7967656E657261,
        secret[1] ^ 0x7465646279746573,
    };
    const byte *words_end = data + (size & ~(int64_t)7);
    uint64_t word = (uint64_t)(size & 0xFF) << 56;
    for (; data < words_end; data += 8) {
        uint64_t next = load_word(data);
        v[3] ^= next;
        sip_round(v), sip_round(v);
        v[0] ^= next;
    }
    for (int number = 0; number < (size & 7); number++) word |= (uint64_t)data[number] << (8 * number);
    v[3] ^= word;
    sip_round(v), sip_round(v);
    v[0] ^= word;
    v[2] ^= 0xEE;
    for (int number = 0; number < 4; number++) sip_round(v);
    words[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xDD;
    for (int number = 0; number < 4; number++) sip_round(v);
    words[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
}

EXPORTED void digest(const byte *data, int64_t size, const uint64_t *secret, uint64_t *words) {
    hash(data, size, secret, words);
}

/* Return the slot of a key or, if it has none, a free one. One slot in sixteen is free. */
static Slot *find_slot(Slot *slots, int64_t slot_count, const uint64_t *secret, const byte *key, int64_t length,
                       uint64_t words[2]) {
    hash(key, length, secret, words);
    if (!words[0]) words[0] = 1;
    uint64_t mask = (uint64_t)slot_count - 1, step = words[1] | 1, number = words[0] & mask;
    while (slots[number].first && (slots[number].first != words[0] || slots[number].second != words[1]))
        number = (number + step) & mask;
    return &slots[number];
}

/* Find up to `most` whole batches in a buffer, whose offsets increase from `lowest` on and stay below `end_offset`.
 * Stop at a batch that is cut, or whose header is invalid. The caller verifies checksums. */
EXPORTED int64_t find_batches(const byte *place, int64_t size, int64_t lowest, int64_t end_offset, int64_t now_ms,
                              Batch *batches, int64_t most, Totals *totals) {
    int64_t used = 0, count = 0;
    while (count < most && size - used >= HEADER_SIZE) {
        const byte *at = place + used;
        int64_t length = read_int32(at + LENGTH) + LENGTH_OVERHEAD;
        if (at[MAGIC_AT] != MAGIC || length < HEADER_SIZE || length > size - used) break;
        int64_t base_offset = read_int64(at), last_delta = read_int32(at + LAST_DELTA);
        if (last_delta < 0 || base_offset < lowest || base_offset >= end_offset - last_delta) break;
        int64_t attributes = read_int16(at + ATTRIBUTES);
        Batch *batch = &batches[count++];
        batch->place = at;
        batch->size = length;
        batch->crc = read_uint32(at + CRC);
        batch->record_count = read_int32(at + COUNT);
        batch->base_offset = base_offset;
        batch->last_offset = base_offset + last_delta;
        batch->max_timestamp = read_int64(at + MAX_TIME);
        batch->base_timestamp = read_int64(at + BASE_TIME);
        batch->horizon = !(attributes & DELETE_HORIZON) ? 0 : batch->base_timestamp <= now_ms ? 2 : 1;
        batch->has_fixed_timestamp = (attributes & LOG_APPEND_TIME) != 0;
        if (batch->has_fixed_timestamp) batch->base_timestamp = batch->max_timestamp;
        batch->is_other = (attributes & (CODEC_MASK | CONTROL | TRANSACTIONAL)) || batch->record_count <= 0;
        batch->keep_empty = 0;
        lowest = batch->last_offset + 1;
        used += length;
    }
    totals->count = count, totals->size = used;
    return DONE;
}

static inline Cursor records_of(const Batch *batch) {
    return (Cursor){batch->place + HEADER_SIZE, batch->place + batch->size};
}

/* Read a record of a batch whose offset is one of the batch's. */
static inline bool read_offset(Cursor *cursor, const Batch *batch, Record *record, int64_t *offset) {
    if (!read_record(cursor, record)) return false;
    if (record->offset_delta < 0 || record->offset_delta > batch->last_offset - batch->base_offset) return false;
    *offset = batch->base_offset + record->offset_delta;
    return true;
}

/* Store the last offset of each key from `from_offset` on; `slot_count` is a power of two. `totals` has the number of
 * keys and the last offset that was seen, over several calls. Return DONE, FULL, or the row of a malformed batch. */
EXPORTED int64_t index_keys(const Batch *batches, int64_t count, int64_t from_offset, Slot *slots, int64_t slot_count,
                            int64_t most_keys, const uint64_t *secret, Totals *totals) {
    for (int64_t row = 0; row < count; row++) {
        const Batch *batch = &batches[row];
        Cursor cursor = records_of(batch);
        for (int64_t number = 0; number < batch->record_count; number++) {
            Record record;
            int64_t offset;
            if (!read_offset(&cursor, batch, &record, &offset)) return row;
            if (record.key_length >= 0 && offset >= from_offset) {
                uint64_t words[2];
                Slot *slot = find_slot(slots, slot_count, secret, record.key, record.key_length, words);
                if (!slot->first) {
                    if (totals->count >= most_keys) return FULL;
                    totals->count++;
                    slot->first = words[0], slot->second = words[1];
                }
                slot->offset = offset;
            }
            totals->latest_offset = offset;
        }
        if (left(&cursor)) return row;
        totals->latest_offset = batch->last_offset;
    }
    return DONE;
}

typedef struct {
    int64_t kept, tombstones, largest;
} Flagged;

/* Flag the records to keep; `flags` has an entry for each record that fits into the batch. */
static bool flag_kept(const Batch *batch, int64_t latest_offset, Slot *slots, int64_t slot_count,
                      const uint64_t *secret, byte *flags, Flagged *found) {
    Cursor cursor = records_of(batch);
    *found = (Flagged){0, 0, -1};
    if (batch->record_count < 0 || batch->record_count > left(&cursor) / MIN_RECORD_BYTES) return false;
    for (int64_t number = 0; number < batch->record_count; number++) {
        Record record;
        int64_t offset, timestamp;
        if (!read_offset(&cursor, batch, &record, &offset)) return false;
        int64_t delta = record.timestamp_delta;
        if (delta < -TIMESTAMP_BOUND || delta >= TIMESTAMP_BOUND) return false;
        int64_t since_base = batch->has_fixed_timestamp ? 0 : delta;
        if (__builtin_add_overflow(batch->base_timestamp, since_base, &timestamp)) return false;
        if (timestamp < -TIMESTAMP_BOUND || timestamp >= TIMESTAMP_BOUND) return false;
        bool keep = offset > latest_offset, is_tombstone = record.value_length < 0;
        if (!keep && record.key_length >= 0 && !(is_tombstone && batch->horizon == 2)) {
            uint64_t words[2];
            const Slot *slot = find_slot(slots, slot_count, secret, record.key, record.key_length, words);
            keep = !slot->first || offset >= slot->offset;
        }
        flags[number] = keep;
        if (keep) {
            found->kept++;
            found->tombstones += is_tombstone;
            if (timestamp > found->largest) found->largest = timestamp;
        }
    }
    return !left(&cursor);
}

/* Write the flagged records of a batch that `flag_kept` has read; return the place after them. With a new delete
 * horizon their timestamp deltas become relative to it. */
static byte *write_records(const Batch *batch, const byte *flags, bool has_new_horizon, int64_t horizon_ms, byte *to) {
    Cursor cursor = records_of(batch);
    for (int64_t number = 0; number < batch->record_count; number++) {
        const byte *from = cursor.at;
        Record record;
        if (!read_record(&cursor, &record)) break;
        if (!flags[number]) continue;
        if (has_new_horizon) {
            int64_t since_base = batch->has_fixed_timestamp ? 0 : record.timestamp_delta;
            int64_t delta = batch->base_timestamp + since_base - horizon_ms;
            from = record.offset_at;
            to = write_varint(to, 1 + varint_size(delta) + (cursor.at - from));
            *to++ = 0;
            to = write_varint(to, delta);
        }
        copy(to, from, cursor.at - from);
        to += cursor.at - from;
    }
    return to;
}

/* Change a batch's header for its kept records and its new size, except the checksum. */
static void change_header(byte *header, int64_t size, const Flagged *found, bool has_new_horizon, int64_t horizon_ms) {
    int64_t attributes = read_int16(header + ATTRIBUTES);
    write_int(header + LENGTH, size - LENGTH_OVERHEAD, 4);
    write_int(header + COUNT, found->kept, 4);
    if (!found->kept) {
        attributes &= LOG_APPEND_TIME | TRANSACTIONAL | CONTROL;
        write_int(header + BASE_TIME, -1, 8);
    } else {
        write_int(header + MAX_TIME, found->largest, 8);
        if (has_new_horizon) {
            attributes |= DELETE_HORIZON;
            write_int(header + BASE_TIME, horizon_ms, 8);
        }
    }
    write_int(header + ATTRIBUTES, attributes, 2);
}

/* Write the batches to keep to `output`, and a row of each to `kept`. A batch after `latest_offset` is copied without
 * its records being read, unless `is_other` is set. `flags` has room for the records of the largest batch, `output` for
 * all batches and eleven bytes more for each record. Return DONE, or the row of a malformed batch. */
EXPORTED int64_t keep_records(const Batch *batches, int64_t count, int64_t latest_offset, int64_t horizon_ms,
                              Slot *slots, int64_t slot_count, const uint64_t *secret, byte *flags, byte *output,
                              Kept *kept, Totals *totals) {
    byte *begin = output;
    int64_t written = 0;
    for (int64_t row = 0; row < count; row++) {
        const Batch *batch = &batches[row];
        Flagged found = {batch->record_count, 0, 0};
        if (batch->is_other || batch->base_offset <= latest_offset) {
            if (!flag_kept(batch, latest_offset, slots, slot_count, secret, flags, &found)) return row;
        }
        if (!found.kept && !batch->keep_empty) continue;
        byte *to = output;
        bool has_new_horizon = found.tombstones && !batch->horizon;
        bool is_changed = found.kept < batch->record_count || has_new_horizon;
        if (is_changed) {
            copy(to, batch->place, HEADER_SIZE);
            to += HEADER_SIZE;
            if (found.kept) to = write_records(batch, flags, has_new_horizon, horizon_ms, to);
            change_header(output, to - output, &found, has_new_horizon, horizon_ms);
        } else {
            copy(to, batch->place, batch->size);
            to += batch->size;
        }
        kept[written++] = (Kept){
            .base_offset = batch->base_offset,
            .last_offset = batch->last_offset,
            .size = to - output,
            .record_count = found.kept,
            .max_timestamp = is_changed && found.kept ? found.largest : batch->max_timestamp,
            .is_changed = is_changed,
            .has_new_horizon = has_new_horizon,
        };
        output = to;
    }
    totals->count = written, totals->size = output - begin;
    return DONE;
}

/* ---- the library ------------------------------------------------------------------------------------------------- */

/* CRC-32 of this file; Python refuses a library with another one. */
EXPORTED const char source_hash[] = SOURCE_HASH;
