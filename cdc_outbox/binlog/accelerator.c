/* The compiled twins of json_text.py, MySQL's binary JSON -> the text of CAST(value AS CHAR), of packets.py, and of the
 * loops that row_loop.py makes.
 *
 * These are the reference. Both lead to the same events and refuse the same values; the layouts and the reasons of the
 * checks are told there. JSON values that came from SQL types are rare and are left to opaque_text() of json_text.py.
 *
 * Positions count from the first byte of the value and are 64 bits wide: sums of the 32-bit numbers that stand in it
 * cannot overflow. Every read is checked against the end of what it belongs to, which lies inside of the value.
 *
 * SOURCE_CRC, the crc32() of this file, is given by scripts/build_accelerator.py: accelerator.py uses no other one's.
 */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <float.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL_OBJECT, LARGE_OBJECT, SMALL_ARRAY, LARGE_ARRAY, LITERAL, INT16, UINT16, INT32, UINT32, INT64, UINT64, DOUBLE,
       STRING, OPAQUE = 15 };

#define DEEPEST 100

/* Of events.py. GTID_SIZE: of the oldest form, checksum included; INTACT: crc32() of an event with its checksum. */
enum { QUERY = 2, XID = 16, TABLE_MAP = 19, ROWS_QUERY = 29, WRITE_ROWS = 30, UPDATE_ROWS, DELETE_ROWS, GTID,
       PACKET_HEADER = 4, EVENT_HEADER = 19, TABLE_ID = 6, CHECKSUM = 4, GTID_SIZE = 65 };
#define INTACT 0x2144DF1Cu

/* What json_text.py owns: the error, and the text of values of SQL types. */
typedef struct {
    PyObject *malformed;
    PyObject *opaque_text;
} State;

/* The value that is read, and its text so far. Small texts need no allocation but that of the result. */
typedef struct {
    State *state;
    const uint8_t *bytes;
    char *text;
    size_t used, size;
    char small[2048];
} Work;

/* -- the text ------------------------------------------------------------------------------------------------------ */

static int grow(Work *work, size_t more)
{
    size_t size = work->used + more + work->size / 2;
    char *text = work->text == work->small ? PyMem_Malloc(size) : PyMem_Realloc(work->text, size);
    if (text == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (work->text == work->small)
        memcpy(text, work->small, work->used);
    work->text = text;
    work->size = size;
    return 0;
}

static int put(Work *work, const void *bytes, size_t count)
{
    if (count > work->size - work->used && grow(work, count) < 0)
        return -1;
    memcpy(work->text + work->used, bytes, count);
    work->used += count;
    return 0;
}

/* For each byte 0 where it stands for itself, else the letter of its escape; u: by its number. */
static const char ESCAPES[256] = {
    'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'b', 't', 'n', 'u', 'f', 'r', 'u', 'u',
    'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u',
    ['"'] = '"', ['\\'] = '\\',
};

static int put_string(Work *work, const uint8_t *from, size_t count)
{
    const uint8_t *end = from + count;
    if (put(work, "\"", 1) < 0)
        return -1;
    for (;;) {
        const uint8_t *plain = from;
        while (from < end && !ESCAPES[*from])
            from++;
        if (put(work, plain, (size_t)(from - plain)) < 0)
            return -1;
        if (from == end)
            return put(work, "\"", 1);
        char escape[6] = {'\\', ESCAPES[*from], '0', '0', (char)('0' + (*from >> 4)), "0123456789abcdef"[*from & 15]};
        if (put(work, escape, escape[1] == 'u' ? 6 : 2) < 0)
            return -1;
        from++;
    }
}

static int put_integer(Work *work, uint64_t magnitude, int negative)
{
    char digits[21], *first = digits + sizeof digits;
    do
        *--first = (char)('0' + magnitude % 10);
    while (magnitude /= 10);
    if (negative)
        *--first = '-';
    return put(work, first, (size_t)(digits + sizeof digits - first));
}

static int put_signed(Work *work, int64_t number)
{
    return put_integer(work, number < 0 ? 0 - (uint64_t)number : (uint64_t)number, number < 0);
}

/* double_text() of json_text.py: `shortest` is what repr() gives, at most 24 characters. */
static int put_shortest(Work *work, const char *shortest)
{
    char all[32], out[48];
    size_t count = 0, length = 0;
    int point = -1;
    const char *c = shortest;

    if (strlen(shortest) < sizeof "1234567890123456.0" - 1 && strchr(shortest, 'e') == NULL)
        return put(work, shortest, strlen(shortest));
    if (*c == '-')
        out[length++] = *c++;
    for (; *c && *c != 'e' && count < sizeof all; c++) {
        if (*c == '.')
            point = (int)count;
        else
            all[count++] = *c;
    }
    if (point < 0)
        point = (int)count;
    if (*c == 'e')
        point += atoi(c + 1);
    const char *digits = all;
    while (count > 1 && *digits == '0') {
        digits++, count--, point--;
    }
    while (count > 1 && digits[count - 1] == '0')
        count--;

    if (point < -14 || (point > 15 && (int)count <= point)) {
        out[length++] = digits[0];
        if (count > 1) {
            out[length++] = '.';
            memcpy(out + length, digits + 1, count - 1);
            length += count - 1;
        }
        length += (size_t)PyOS_snprintf(out + length, sizeof out - length, "e%d", point - 1);
        return put(work, out, length);
    }
    if (point <= 0) {
        memcpy(out + length, "0.00000000000000", (size_t)(2 - point));
        length += (size_t)(2 - point);
        memcpy(out + length, digits, count);
        return put(work, out, length + count);
    }
    for (int i = 0; i < point; i++)
        out[length++] = i < (int)count ? digits[i] : '0';
    out[length++] = '.';
    if ((int)count <= point)
        out[length++] = '0';
    else
        for (int i = point; i < (int)count; i++)
            out[length++] = digits[i];
    return put(work, out, length);
}

/* Amounts: a number with few digits, at most 4 of them behind the point. 1 where it is none, and nothing was put.
 *
 * Where n / 10^k, rounded once, is the number, n / 10^k reads back as it; and no other decimal of at most 15 digits does,
 * so that these are the shortest digits.
 */
static int put_amount(Work *work, double number)
{
    static const int64_t POWERS[] = {1, 10, 100, 1000, 10000};
    const double size = number < 0 ? -number : number;
    if (FLT_EVAL_METHOD != 0 || !(size >= 1e-4 && size < 1e11))
        return 1;
    for (int decimals = 0; decimals < 5; decimals++) {
        const double power = (double)POWERS[decimals];
        const int64_t n = (int64_t)(size * power + 0.5);
        if ((double)n / power != size)
            continue;
        char fraction[8] = {'.', '0'};
        int64_t rest = n % POWERS[decimals];
        for (int i = decimals; i > 0; i--, rest /= 10)
            fraction[i] = (char)('0' + rest % 10);
        if (put_integer(work, (uint64_t)(n / POWERS[decimals]), number < 0) < 0)
            return -1;
        return put(work, fraction, decimals ? (size_t)decimals + 1 : 2);
    }
    return 1;
}

static int put_double(Work *work, double number)
{
    int outcome = put_amount(work, number);
    if (outcome <= 0)
        return outcome;
    char *shortest = PyOS_double_to_string(number, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
    if (shortest == NULL)
        return -1;
    int failed = put_shortest(work, shortest);
    PyMem_Free(shortest);
    return failed;
}

/* -- the value ----------------------------------------------------------------------------------------------------- */

static int malformed(Work *work, const char *what)
{
    PyErr_Format(work->state->malformed, "binary JSON cannot be read: %s", what);
    return -1;
}

/* An unsigned number of 1 to 8 bytes, low byte first. */
static uint64_t number_at(const uint8_t *bytes, int size)
{
    uint64_t number = 0;
    while (size--)
        number = number << 8 | bytes[size];
    return number;
}

/* The variable-length length at *at, below limit; *at moves behind it, *end behind what it counts. */
static int read_length(Work *work, uint64_t *at, uint64_t limit, uint64_t *end)
{
    uint64_t size = 0;
    for (int shift = 0; shift <= 28; shift += 7) {
        if (*at >= limit)
            return malformed(work, "a length reaches out of its container");
        uint8_t byte = work->bytes[(*at)++];
        size |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *end = *at + size;
            return *end > limit ? malformed(work, "a value reaches out of its container") : 0;
        }
    }
    return malformed(work, "a length is longer than 5 bytes");
}

static int put_opaque(Work *work, uint64_t at, uint64_t limit, uint64_t *end)
{
    uint64_t start = at + 1;
    if (read_length(work, &start, limit, end) < 0)
        return -1;
    PyObject *text = PyObject_CallFunction(work->state->opaque_text, "iy#", (int)work->bytes[at],
                                           (const char *)work->bytes + start, (Py_ssize_t)(*end - start));
    char *bytes;
    Py_ssize_t size;
    int failed = text == NULL || PyBytes_AsStringAndSize(text, &bytes, &size) < 0 || put(work, bytes, (size_t)size) < 0;
    Py_XDECREF(text);
    return failed ? -1 : 0;
}

static int put_container(Work *work, int kind, uint64_t at, uint64_t limit, uint64_t *end, int levels);

static const uint8_t SIZES[] = {[LITERAL] = 1, [INT16] = 2,  [UINT16] = 2, [INT32] = 4,
                                [UINT32] = 4,  [INT64] = 8,  [UINT64] = 8, [DOUBLE] = 8};

/* The value that begins at `at` and may reach up to limit, with at most `levels` of containers in it; *end is its end. */
static int put_value(Work *work, int kind, uint64_t at, uint64_t limit, uint64_t *end, int levels)
{
    if (kind <= LARGE_ARRAY)
        return put_container(work, kind, at, limit, end, levels);
    if (kind == STRING) {
        if (read_length(work, &at, limit, end) < 0)
            return -1;
        return put_string(work, work->bytes + at, (size_t)(*end - at));
    }
    if (kind == OPAQUE)
        return put_opaque(work, at, limit, end);
    if (kind > STRING)
        return malformed(work, "there is no such JSON type");

    *end = at + SIZES[kind];
    if (*end > limit)
        return malformed(work, "a value reaches out of its container");
    uint64_t number = number_at(work->bytes + at, SIZES[kind]);
    double real;
    switch (kind) {
    case LITERAL:
        if (number > 2)
            return malformed(work, "there is no such literal");
        return number == 0 ? put(work, "null", 4) : number == 1 ? put(work, "true", 4) : put(work, "false", 5);
    case INT16:
        return put_signed(work, (int16_t)number);
    case INT32:
        return put_signed(work, (int32_t)number);
    case INT64:
        return put_signed(work, (int64_t)number);
    case DOUBLE:
        memcpy(&real, &number, sizeof real);
        return put_double(work, real);
    default:
        return put_integer(work, number, 0);
    }
}

static int is_inlined(int kind, int large)
{
    return kind == LITERAL || kind == INT16 || kind == UINT16 || (large && (kind == INT32 || kind == UINT32));
}

/* levels: of containers that there may be, this one included. */
static int put_container(Work *work, int kind, uint64_t at, uint64_t limit, uint64_t *end, int levels)
{
    const int large = kind & 1, is_object = kind <= LARGE_OBJECT, width = large ? 4 : 2;
    const int key_entry = width + 2, value_entry = 1 + width;
    if (levels == 0)
        return malformed(work, "it is nested too deep");
    if (limit - at < (uint64_t)(2 * width))
        return malformed(work, "a container is cut short");
    const uint64_t count = number_at(work->bytes + at, width);
    *end = at + number_at(work->bytes + at + width, width);
    if (*end > limit)
        return malformed(work, "a container reaches out of its parent");
    uint64_t keys = at + (uint64_t)(2 * width);
    uint64_t values = keys + (is_object ? count * (uint64_t)key_entry : 0);
    uint64_t key_floor = values + count * (uint64_t)value_entry, floor = key_floor;
    if (floor > *end)
        return malformed(work, "a container is smaller than its own entries");
    if (is_object && count) { /* values lie behind the last key */
        const uint8_t *last = work->bytes + values - key_entry;
        floor = at + number_at(last, width) + number_at(last + width, 2);
    }
    if (put(work, is_object ? "{" : "[", 1) < 0)
        return -1;
    for (uint64_t i = 0; i < count; i++, keys += (uint64_t)key_entry, values += (uint64_t)value_entry) {
        if (i && put(work, ", ", 2) < 0)
            return -1;
        if (is_object) {
            uint64_t start = at + number_at(work->bytes + keys, width);
            uint64_t size = number_at(work->bytes + keys + width, 2);
            if (start < key_floor || start + size > *end)
                return malformed(work, "a key lies outside of its object");
            key_floor = start + size;
            if (put_string(work, work->bytes + start, (size_t)size) < 0 || put(work, ": ", 2) < 0)
                return -1;
        }
        const int value_kind = work->bytes[values];
        uint64_t value_end;
        if (is_inlined(value_kind, large)) {
            if (put_value(work, value_kind, values + 1, *end, &value_end, levels - 1) < 0)
                return -1;
            continue;
        }
        uint64_t start = at + number_at(work->bytes + values + 1, width);
        if (start < floor || start > *end)
            return malformed(work, "a value overlaps its neighbour");
        if (put_value(work, value_kind, start, *end, &floor, levels - 1) < 0)
            return -1;
    }
    return put(work, is_object ? "}" : "]", 1);
}

/* -- packets ------------------------------------------------------------------------------------------------------- */

/* What was received, and how far it is cut. */
typedef struct {
    const uint8_t *data;
    Py_ssize_t end, largest;
} Received;

/* Bytes of the event whose packet stands at `at`, 0 for one that is not whole, too large or no event. */
static Py_ssize_t event_at(const Received *from, Py_ssize_t at)
{
    if (from->end - at <= PACKET_HEADER)
        return 0;
    const Py_ssize_t size = (Py_ssize_t)number_at(from->data + at, 3);
    if (size == 0 || size > from->largest || size > from->end - at - PACKET_HEADER || from->data[at + PACKET_HEADER])
        return 0;
    return size;
}

static uint32_t crc_tables[8][256];

static void make_crc_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0xEDB88320u : 0);
        crc_tables[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            crc_tables[k][i] = (crc_tables[k - 1][i] >> 8) ^ crc_tables[0][crc_tables[k - 1][i] & 255];
}

/* zlib's crc32(), eight bytes at a time. */
static uint32_t crc32_of(const uint8_t *bytes, Py_ssize_t size)
{
    uint32_t crc = 0xFFFFFFFFu;
    for (; size >= 8; bytes += 8, size -= 8) {
        const uint32_t low = (uint32_t)number_at(bytes, 4) ^ crc, high = (uint32_t)number_at(bytes + 4, 4);
        crc = crc_tables[7][low & 255] ^ crc_tables[6][low >> 8 & 255] ^ crc_tables[5][low >> 16 & 255]
            ^ crc_tables[4][low >> 24] ^ crc_tables[3][high & 255] ^ crc_tables[2][high >> 8 & 255]
            ^ crc_tables[1][high >> 16 & 255] ^ crc_tables[0][high >> 24];
    }
    for (; size > 0; bytes++, size--)
        crc = (crc >> 8) ^ crc_tables[0][(crc ^ *bytes) & 255];
    return ~crc;
}

static int is_begin(const uint8_t *event, Py_ssize_t size)
{
    if (event[4] != QUERY || size < 33 + CHECKSUM)
        return 0;
    const Py_ssize_t at = 33 + event[27] + (Py_ssize_t)number_at(event + 30, 2);
    return size - CHECKSUM == at + 5 && memcmp(event + at, "BEGIN", 5) == 0;
}

/* Whether the TABLE_MAP names a table that is among `kept`: 1, 0, -1 where it cannot be told, -2 with an exception. */
static int maps_kept(const uint8_t *event, Py_ssize_t size, PyObject *kept)
{
    const Py_ssize_t end = size - CHECKSUM;
    if (end < 28)
        return -1;
    const Py_ssize_t at = 28 + event[27] + 1; /* behind the table id, two bytes of flags and the database */
    if (at >= end || at + 1 + event[at] > end)
        return -1;
    for (Py_ssize_t i = 0; i < PyTuple_Size(kept); i++) {
        char *name;
        Py_ssize_t length;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(kept, i), &name, &length) < 0)
            return -2;
        if (length == event[at] && memcmp(event + at + 1, name, (size_t)length) == 0)
            return 1;
    }
    return 0;
}

#define MOST_CHANGES 64

typedef struct {
    const uint8_t *event;
    Py_ssize_t size;
} Change;

/* One whole transaction: its changes in tables that are kept, whether it has some in others, and its last event. */
typedef struct {
    const uint8_t *gtid, *last;
    Py_ssize_t gtid_size, end;
    int changes, maps, others;
    Change change[MOST_CHANGES];
    struct {
        uint64_t table;
        int kept;
    } map[MOST_CHANGES];
} Transaction;

/* 1 where the change is one of a transaction that can be taken whole, 0 where not, -1 with an exception. */
static int take_change(Transaction *into, const uint8_t *event, Py_ssize_t size, PyObject *kept)
{
    if (size < EVENT_HEADER + TABLE_ID + CHECKSUM)
        return 0;
    const uint64_t table = number_at(event + EVENT_HEADER, TABLE_ID);
    int i = 0;
    while (i < into->maps && into->map[i].table != table)
        i++;
    if (event[4] == TABLE_MAP) {
        const int is_kept = maps_kept(event, size, kept);
        if (is_kept < 0)
            return is_kept + 1;
        if (i == MOST_CHANGES)
            return 0;
        if (i == into->maps)
            into->maps++;
        into->map[i].table = table;
        into->map[i].kept = is_kept;
        into->others |= !is_kept;
    }
    if (i == into->maps)
        return 0;
    if (into->map[i].kept) {
        if (into->changes == MOST_CHANGES)
            return 0;
        into->change[into->changes++] = (Change){event, size};
    }
    return 1;
}

/* 1 where a whole transaction begins at `at`, 0 where none does, -1 with an exception. Anything unusual is none: it is
 * left to transactions.py, which knows what to say of it. */
static int transaction_at(const Received *from, Py_ssize_t at, PyObject *kept, Transaction *into)
{
    enum { BEFORE, AFTER_GTID, AFTER_BEGIN } seen = BEFORE;
    Py_ssize_t packet;
    into->changes = into->maps = into->others = 0;
    for (; (packet = event_at(from, at)) > EVENT_HEADER + CHECKSUM; at += PACKET_HEADER + packet) {
        const uint8_t *event = from->data + at + PACKET_HEADER + 1;
        const Py_ssize_t size = packet - 1;
        const int kind = event[4];
        if (seen == BEFORE) {
            if (kind != GTID || size < GTID_SIZE)
                return 0;
            into->gtid = event;
            into->gtid_size = size;
        } else if (seen == AFTER_GTID) {
            if (!is_begin(event, size))
                return 0;
        } else if (kind == TABLE_MAP || kind == WRITE_ROWS || kind == UPDATE_ROWS || kind == DELETE_ROWS) {
            const int taken = take_change(into, event, size, kept);
            if (taken <= 0)
                return taken;
        } else if (kind != ROWS_QUERY && kind != XID) {
            return 0;
        }
        if (crc32_of(event, size) != INTACT)
            return 0;
        if (seen == AFTER_BEGIN && kind == XID) {
            into->last = event;
            into->end = at + PACKET_HEADER + packet;
            return into->maps > 0;
        }
        if (seen < AFTER_BEGIN)
            seen++;
    }
    return 0;
}

static PyObject *changes_of(const Transaction *whole)
{
    PyObject *changes = PyTuple_New(whole->changes);
    for (int i = 0; changes != NULL && i < whole->changes; i++) {
        PyObject *change = PyBytes_FromStringAndSize((const char *)whole->change[i].event, whole->change[i].size);
        if (change == NULL || PyTuple_SetItem(changes, i, change) < 0)
            Py_CLEAR(changes);
    }
    return changes;
}

/* What `Whole` of packets.py has of the one transaction with changes that begins at `at`, or of those without whose
 * numbers follow each other; NULL without an exception where there is none. */
static PyObject *whole(const Received *from, Py_ssize_t *at, PyObject *kept)
{
    Transaction first, next;
    if (transaction_at(from, *at, kept, &first) <= 0)
        return NULL;
    uint64_t number = number_at(first.gtid + 36, 8);
    const uint8_t *last = first.last;
    *at = first.end;
    int found = 0;
    while (first.changes == 0 && (found = transaction_at(from, *at, kept, &next)) > 0) {
        if (next.changes > 0 || number_at(next.gtid + 36, 8) != number + 1 || memcmp(next.gtid + 20, first.gtid + 20, 16))
            break;
        number++;
        last = next.last;
        *at = next.end;
    }
    PyObject *changes = found < 0 ? NULL : changes_of(&first);
    if (changes == NULL)
        return NULL;
    return Py_BuildValue("y#KkNN", (const char *)first.gtid, first.gtid_size, (unsigned long long)number,
                         (unsigned long)number_at(last + 13, 4), PyBool_FromLong(first.others), changes);
}

static PyObject *cut(PyObject *module, PyObject *arguments)
{
    (void)module;
    Received from;
    Py_ssize_t at = 0, size;
    PyObject *kept = NULL;
    const char *data;
    if (!PyArg_ParseTuple(arguments, "y#nO", &data, &from.end, &from.largest, &kept))
        return NULL;
    if (kept != Py_None && !PyTuple_Check(kept)) {
        PyErr_SetString(PyExc_TypeError, "kept is neither a tuple nor None");
        return NULL;
    }
    from.data = (const uint8_t *)data;
    PyObject *events = PyList_New(0);
    if (events == NULL)
        return NULL;
    while ((size = event_at(&from, at)) != 0) {
        PyObject *event = kept == Py_None ? NULL : whole(&from, &at, kept);
        if (event == NULL && !PyErr_Occurred()) {
            event = PyBytes_FromStringAndSize(data + at + PACKET_HEADER + 1, size - 1);
            at += PACKET_HEADER + size;
        }
        int failed = event == NULL || PyList_Append(events, event) < 0;
        Py_XDECREF(event);
        if (failed) {
            Py_DECREF(events);
            return NULL;
        }
    }
    return Py_BuildValue("Nn", events, at);
}

/* The text of the JSON value of `size` bytes. */
static PyObject *json_text_of(PyObject *module, const char *bytes, Py_ssize_t size)
{
    Work work;
    if (size == 0)
        return PyBytes_FromStringAndSize("null", 4);
    work.state = PyModule_GetState(module);
    work.bytes = (const uint8_t *)bytes;
    work.text = work.small;
    work.used = 0;
    work.size = sizeof work.small;
    uint64_t end;
    PyObject *text = NULL;
    if (put_value(&work, work.bytes[0], 1, (uint64_t)size, &end, DEEPEST) == 0)
        text = PyBytes_FromStringAndSize(work.text, (Py_ssize_t)work.used);
    if (work.text != work.small)
        PyMem_Free(work.text);
    return text;
}

static PyObject *json_text(PyObject *module, PyObject *value)
{
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(value, &bytes, &size) < 0)
        return NULL;
    return json_text_of(module, bytes, size);
}

/* -- rows ---------------------------------------------------------------------------------------------------------- */

/* Of row_loop.py: a step is three bytes, what to do, the size of the value or of its length, and the argument's number. */
enum { FIXED, VARIABLE, SIGNED, UNSIGNED, TEXT, JSON, BYTES, COMMITTED_AT, STEP_SIZE = 3 };

typedef struct {
    PyObject *module, *event, *constants, *committed_at;
    const char *bytes, *steps, *nulls;
    Py_ssize_t end, steps_size, nulls_size;
} Rows;

static PyObject *out_of_its_event(void)
{
    PyErr_SetString(PyExc_ValueError, "a row reaches out of its event");
    return NULL;
}

/* The argument that a step makes of the value at `at`, which is moved behind it; NULL with an exception. */
static PyObject *argument_at(const Rows *rows, const char *step, Py_ssize_t *at)
{
    const uint8_t *value = (const uint8_t *)rows->bytes + *at;
    const int size = (uint8_t)step[1], is_fixed = step[0] == FIXED || step[0] == SIGNED || step[0] == UNSIGNED;
    if (size > rows->end - *at)
        return out_of_its_event();
    *at += size;
    if (step[0] == UNSIGNED)
        return PyLong_FromUnsignedLongLong(number_at(value, size));
    if (step[0] == SIGNED) {
        const int unused = 64 - 8 * size;
        return PyLong_FromLongLong((int64_t)(number_at(value, size) << unused) >> unused);
    }
    if (!is_fixed) {
        const uint64_t length = number_at(value, size);
        if (length > (uint64_t)(rows->end - *at))
            return out_of_its_event();
        const char *content = rows->bytes + *at;
        *at += (Py_ssize_t)length;
        if (step[0] == TEXT)
            return PyUnicode_DecodeUTF8(content, (Py_ssize_t)length, NULL);
        if (step[0] == JSON)
            return json_text_of(rows->module, content, (Py_ssize_t)length);
        if (step[0] == BYTES)
            return PyBytes_FromStringAndSize(content, (Py_ssize_t)length);
    }
    Py_RETURN_NONE;
}

/* The Event of the row whose null bits stand at `at`, which is moved behind it; NULL with an exception. */
static PyObject *event_of_row(const Rows *rows, Py_ssize_t *at)
{
    const Py_ssize_t count = PyTuple_Size(rows->constants);
    PyObject *arguments = PyTuple_New(count);
    if (arguments == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++)
        PyTuple_SetItem(arguments, i, Py_NewRef(PyTuple_GetItem(rows->constants, i)));
    *at += rows->nulls_size;
    for (const char *step = rows->steps; step < rows->steps + rows->steps_size; step += STEP_SIZE) {
        PyObject *argument = step[0] == COMMITTED_AT ? Py_NewRef(rows->committed_at) : argument_at(rows, step, at);
        if (argument == NULL) {
            Py_DECREF(arguments);
            return NULL;
        }
        if (step[0] == FIXED || step[0] == VARIABLE)
            Py_DECREF(argument);
        else
            PyTuple_SetItem(arguments, step[2], argument);
    }
    PyObject *event = PyObject_Call(rows->event, arguments, NULL);
    Py_DECREF(arguments);
    return event;
}

static PyObject *rows(PyObject *module, PyObject *arguments)
{
    Rows rows = {.module = module};
    PyObject *bytes, *add;
    Py_ssize_t at, size;
    if (!PyArg_ParseTuple(arguments, "y#y#OO!SnnOO", &rows.steps, &rows.steps_size, &rows.nulls, &rows.nulls_size,
                          &rows.event, &PyTuple_Type, &rows.constants, &bytes, &at, &rows.end, &rows.committed_at, &add)
        || PyBytes_AsStringAndSize(bytes, (char **)&rows.bytes, &size) < 0)
        return NULL;
    if (at < 0 || rows.end > size)
        return out_of_its_event();
    while (at < rows.end) {
        if (rows.nulls_size > rows.end - at)
            return out_of_its_event();
        if (memcmp(rows.bytes + at, rows.nulls, (size_t)rows.nulls_size) != 0)
            break;
        PyObject *event = event_of_row(&rows, &at);
        PyObject *added = event == NULL ? NULL : PyObject_CallFunctionObjArgs(add, event, NULL);
        Py_XDECREF(event);
        if (added == NULL)
            return NULL;
        Py_DECREF(added);
    }
    return PyLong_FromSsize_t(at);
}

/* -- the module ---------------------------------------------------------------------------------------------------- */

static int set_up(PyObject *module)
{
    State *state = PyModule_GetState(module);
    PyObject *reference = PyImport_ImportModule("cdc_outbox.binlog.json_text");
    if (reference == NULL)
        return -1;
    state->malformed = PyObject_GetAttrString(reference, "MalformedJson");
    state->opaque_text = PyObject_GetAttrString(reference, "opaque_text");
    Py_DECREF(reference);
    if (state->malformed == NULL || state->opaque_text == NULL)
        return -1;
    make_crc_tables();
    PyObject *crc = PyLong_FromUnsignedLong(SOURCE_CRC);
    int failed = crc == NULL || PyModule_AddObjectRef(module, "SOURCE_CRC", crc) < 0;
    Py_XDECREF(crc);
    return failed ? -1 : 0;
}

static int traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->malformed);
    Py_VISIT(state->opaque_text);
    return 0;
}

static int clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->malformed);
    Py_CLEAR(state->opaque_text);
    return 0;
}

static PyMethodDef functions[] = {
    {"json_text", json_text, METH_O, "What MySQL prints for a JSON column's value; see json_text.py."},
    {"cut", cut, METH_VARARGS, "The events that bytes begin with, those of whole transactions together; see packets.py."},
    {"rows", rows, METH_VARARGS, "Events of the rows of an event, by steps; see row_loop.py."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, set_up}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_cdc_outbox_accelerator",
    .m_size = sizeof(State),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
};

PyMODINIT_FUNC PyInit__cdc_outbox_accelerator(void)
{
    return PyModuleDef_Init(&definition);
}
