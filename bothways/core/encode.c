// The encoder of BERT (Devlin 2018): from the ids of tokens to their last hidden states, by one or several threads.
//
// forward.py has the same in numpy, and is the specification. The texts of a batch stand one after another, without
// padding. Threads share out rows, heads and outputs, never a sum, so that neither their number nor the other texts of a
// batch change a bit of a text's result. There is no memory and no state between two calls: any number of threads may
// call at once.
//
// Statements may stand behind a text, which are read with it: a statement attends to its text and to itself, a text to
// itself alone, and positions of each begin anew. So no statement knows of another one.
//
// Letters: T tokens, N texts, P parts (a text and the statements behind it), R tokens that are read, H hidden size, A
// heads of size D, E embedding size, I inner size.

#include "attend.c"
#include "packed.c"

#include <pthread.h>
#include <stdatomic.h>

enum { GROUP = 256 };       // tokens that go through all layers together, so that their numbers stay in the caches
enum { SPARE_ROWS = 32 };   // that tiles may read after the last row
enum { MAX_THREADS = 64 };
enum { THIN = 32 };         // inputs of an adapter's second product
enum { SPINS = 1000 };      // about 50 microseconds, before a thread that waits goes to sleep

enum { FINE = 0, BAD_STARTS = 1, BAD_ID = 2, BAD_SEGMENT = 3, TOO_LONG = 4, BAD_ROWS = 5, BAD_PARTS = 6 };

typedef struct { const float *scale, *shift; } Norm;

typedef struct {
    Linear qkv, attention_output, inner, output;
    Norm attention_norm, output_norm;
} Layer;

// core.py has the same fields.
typedef struct {
    int64_t kind, activation;  // kind: of attention, and of layers that are not INT8
    int64_t hidden, embedding, heads, head_size, inner;
    int64_t positions, position_offset, segments, depth;  // numbers of rows; the place of a text's first token; layers
    double epsilon;
    const float *position_rows, *segment_rows;  // [positions, E], [segments, E]
    Norm norm;
    Linear widen;         // E to H; without outputs where both are equal
    const Layer *layers;  // [depth]
} Model;

// What is added in a layer for statements, not for texts: to two linear layers, x W + b + (x down) up (Hu 2022), and to
// the scores of their attention to the text.
typedef struct {
    Linear qkv_down, qkv_up, inner_down, inner_up;
    const float *gates;  // [A]
} Adapter;

typedef struct {
    const float *words;       // [num_words, E]
    int64_t num_words;
    const int32_t *ids;       // [T] rows of words
    const int32_t *segments;  // [T], or none: all 0
    const int64_t *starts;    // [N + 1] each text's first token, from 0 on, and the end of the last text
    int64_t N;
    const int64_t *rows;      // [R] tokens that are read, ascending; or none: all
    int64_t R;
    float *out;               // [R, H] or [T, H]
    const int64_t *parts;     // [P + 1] each part's first token, and the end of the last part; or none: texts alone
    const int64_t *first_parts;  // [N + 1] each text's first part, which is the text without its statements; and P
    const Adapter *adapters;  // [depth], or none
} Batch;

// --- threads that wait for each other ---------------------------------------------------------------------------------

typedef struct {
    int count;
    _Alignas(64) atomic_int arrived;
    _Alignas(64) atomic_int phase;
    atomic_int sleeping;
    pthread_mutex_t lock;
    pthread_cond_t wake;
} Barrier;

INLINE void pause_briefly(void) {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Returns when all threads have called it.
static void wait_for_all(Barrier *barrier) {
    if (barrier->count == 1) return;

    int phase = atomic_load(&barrier->phase);
    if (atomic_fetch_add(&barrier->arrived, 1) == barrier->count - 1) {
        atomic_store(&barrier->arrived, 0);
        atomic_store(&barrier->phase, phase + 1);
        if (atomic_load(&barrier->sleeping)) {
            pthread_mutex_lock(&barrier->lock);
            pthread_cond_broadcast(&barrier->wake);
            pthread_mutex_unlock(&barrier->lock);
        }
        return;
    }

    for (int spin = 0; spin < SPINS; spin++) {
        if (atomic_load_explicit(&barrier->phase, memory_order_acquire) != phase) return;
        pause_briefly();
    }
    // A thread that sleeps has said so before it looks again, and the last one looks after it has changed the phase.
    pthread_mutex_lock(&barrier->lock);
    atomic_fetch_add(&barrier->sleeping, 1);
    while (atomic_load(&barrier->phase) == phase) pthread_cond_wait(&barrier->wake, &barrier->lock);
    atomic_fetch_sub(&barrier->sleeping, 1);
    pthread_mutex_unlock(&barrier->lock);
}

typedef struct { size_t first, last; } Range;

// The part of n things that thread `index` of `count` does.
INLINE Range share(size_t n, int index, int count) { return (Range){n * index / count, n * (index + 1) / count}; }

// --- a group of texts -------------------------------------------------------------------------------------------------

// Texts first to last of a batch, whose T tokens begin at `start`, and R tokens that are read, from row `row` on.
typedef struct { int64_t first, last, start, T, row, R; } Group;

// The group that begins with a text: as many as have GROUP tokens together, or one.
static Group next_group(const Batch *batch, int64_t first, int64_t row) {
    const int64_t *starts = batch->starts;
    int64_t last = first + 1;
    while (last < batch->N && last - first < GROUP && starts[last + 1] - starts[first] <= GROUP) last++;

    Group group = {first, last, starts[first], starts[last] - starts[first], row, 0};
    if (!batch->rows) group.R = group.T;
    else while (row + group.R < batch->R && batch->rows[row + group.R] < starts[last]) group.R++;
    return group;
}

// What threads share while they compute a group; each number is written by one of them.
typedef struct {
    float *states;       // [T, H]
    float *sums;         // [T, H] or [T, E]
    void *inputs;        // [T, H] or [T, E] in the format of what reads them; in float32, the states are read
    void *qkv;           // [T, 3, A, D] of the kind of attention
    void *queries;       // [R, A, D], in the last layer if not all tokens are read
    void *attended;      // [T, A, D] in the format of what reads them
    void *inner;         // [T, I] likewise
    float *thin;         // [T, THIN] of an adapter
    float *addends;      // [T, 3, A, D] or [T, I] of an adapter
    int64_t *query_starts;  // [texts + 1] first row of each text among those that are read
    float *own;          // of each thread, own_floats
    size_t own_floats;
} Memory;

// The next bytes of a block of memory, at an address that a cache line begins at.
static void *take(uintptr_t *end, size_t bytes) {
    uintptr_t taken = *end;
    *end += round_up(bytes, 64);
    return (void *)taken;
}

// The parts of the memory at an address, for T tokens of texts of at most S; their bytes, for which it may be 0.
static size_t divide(
    const Model *model, size_t T, size_t S, int has_adapters, int threads, uintptr_t address, Memory *parts) {
    uintptr_t end = address;
    size_t rows = T + SPARE_ROWS;
    size_t hidden = model->hidden, embedding = model->embedding;
    size_t widest = hidden > embedding ? hidden : embedding;
    size_t attended = model->heads * model->head_size;
    size_t bytes = bytes_of(model->kind);  // at most: inputs of INT8 have fewer

    parts->states = take(&end, 4 * rows * hidden);
    parts->sums = take(&end, 4 * rows * widest);
    parts->inputs = take(&end, 2 * rows * widest);
    parts->qkv = take(&end, 4 * rows * 3 * attended);
    parts->queries = take(&end, 4 * rows * attended);
    parts->attended = take(&end, bytes * rows * attended);
    parts->inner = take(&end, bytes * rows * model->inner);
    size_t widest_adapted = 3 * attended > (size_t)model->inner ? 3 * attended : (size_t)model->inner;
    size_t adapted_rows = has_adapters ? rows : 0;
    parts->thin = take(&end, 4 * adapted_rows * THIN);
    parts->addends = take(&end, 4 * adapted_rows * widest_adapted);
    parts->query_starts = take(&end, 8 * (GROUP + 1));
    parts->own_floats = round_up(attention_floats(S, model->head_size), 16);
    parts->own = take(&end, 4 * parts->own_floats * threads);
    return end - address;
}

// --- a text and the statements behind it ------------------------------------------------------------------------------

typedef struct { int64_t start, end; } Part;  // tokens

INLINE int64_t first_part(const Batch *batch, int64_t text) { return batch->parts ? batch->first_parts[text] : text; }

// A part of a text: the text itself, or a statement.
INLINE Part part_of(const Batch *batch, int64_t text, int64_t part) {
    if (batch->parts) return (Part){batch->parts[part], batch->parts[part + 1]};
    return (Part){batch->starts[text], batch->starts[text + 1]};
}

// --- steps of a layer -------------------------------------------------------------------------------------------------

// The sum of `count` vectors, in one order.
INLINE float sum_of_all(const vf *sums, int count) {
    vf sum = sums[0];
    for (int i = 1; i < count; i++) sum += sums[i];
    return sum_of(sum);
}

// norm(x + y) (Ba 2016): a row of H numbers with mean 0 and variance 1, scaled and shifted, to x; and its numbers in a
// format to `inputs`, unless it is 0. y may be 0: norm(x).
INLINE void add_and_normalize(
    float *x, const float *y, size_t H, const Norm *norm, float epsilon, Format format, void *inputs) {
    enum { PARTS = 4, STEP = PARTS * W };  // sums that do not wait for each other
    vf sums[PARTS] = {0}, squares[PARTS] = {0};
    for (size_t h = 0; h < H; h += STEP)
        UNROLL for (int i = 0; i < PARTS; i++) {
            size_t at = h + i * W;
            if (at >= H) break;
            vf sum = y ? load(x + at) + load(y + at) : load(x + at);
            if (y) store(x + at, sum);
            sums[i] += sum;
        }
    float mean = sum_of_all(sums, PARTS) / H;

    for (size_t h = 0; h < H; h += STEP)
        UNROLL for (int i = 0; i < PARTS; i++) {
            size_t at = h + i * W;
            if (at >= H) break;
            vf difference = load(x + at) - mean;
            squares[i] += difference * difference;
        }
    float factor = 1 / sqrtf(sum_of_all(squares, PARTS) / H + epsilon);

    for (size_t h = 0; h < H; h += W) {
        vf normal = (load(x + h) - mean) * factor * load(norm->scale + h) + load(norm->shift + h);
        store(x + h, normal);
        if (inputs) store_as(format, inputs, h, h, normal);
    }
}

// Where a layer's inputs are stored for a row of `width` numbers; 0 if it reads the states, or there is no layer.
INLINE void *input_row(const Memory *memory, const Linear *reader, size_t row, size_t width) {
    if (!reader || reader->format.kind == FLOAT32) return 0;
    return (char *)memory->inputs + row * width * bytes_of(reader->format.kind);
}

// Rows of states = norm(states + sums), and the inputs of the layer that reads them, if there is one.
static void add_and_norm(
    const Model *model, const Norm *norm, const Memory *memory, Range rows, const Linear *reader) {
    size_t H = model->hidden;
    Format format = reader ? reader->format : (Format){0};
    for (size_t row = rows.first; row < rows.last; row++) {
        float *x = memory->states + row * H;
        void *inputs = input_row(memory, reader, row, H);
        add_and_normalize(x, memory->sums + row * H, H, norm, model->epsilon, format, inputs);
    }
}

// The sum of the embeddings of words, segments and positions, normalized, of some texts of a group.
static void embed(const Model *model, const Batch *batch, const Group *group, const Memory *memory, Range texts) {
    size_t E = model->embedding;
    int is_wide = model->widen.outputs != 0;
    float *states = is_wide ? memory->sums : memory->states;
    const Linear *reader = is_wide ? &model->widen : &model->layers->qkv;

    for (size_t text = texts.first; text < texts.last; text++) {
        int64_t start = batch->starts[group->first + text];
        int64_t part = first_part(batch, group->first + text);
        for (int64_t token = start; token < batch->starts[group->first + text + 1]; token++) {
            while (batch->parts && token >= batch->parts[part + 1]) start = batch->parts[++part];

            const float *word = batch->words + (size_t)batch->ids[token] * E;
            const float *position = model->position_rows + (token - start + model->position_offset) * E;
            const float *segment = model->segment_rows + (batch->segments ? batch->segments[token] : 0) * E;

            size_t row = token - group->start;
            float *x = states + row * E;
            for (size_t e = 0; e < E; e += W) {
                vf sum = load(word + e);
                if (model->segments) sum += load(segment + e);
                store(x + e, sum + load(position + e));
            }
            void *inputs = input_row(memory, reader, row, E);
            add_and_normalize(x, 0, E, &model->norm, model->epsilon, reader->format, inputs);
        }
    }
}

// A thread's part of the outputs of a layer for rows of inputs.
static void multiply(
    const void *inputs, size_t rows, const Linear *l, const Target *to, int thread, int threads) {
    Range panels = share(panels_of(l->format.kind, l->outputs), thread, threads);
    product(inputs, rows, l, panels.first, panels.last, to);
}

// What a layer reads: the states, or its inputs.
INLINE const void *inputs_of(const Memory *memory, const Linear *l) {
    return l->format.kind == FLOAT32 ? memory->states : memory->inputs;
}

// Rows of what is read, to the front. They ascend, so that none is overwritten before it is read.
static void take_rows(void *x, size_t bytes, const int64_t *rows, int64_t R, int64_t start) {
    for (int64_t row = 0; row < R; row++)
        memmove((char *)x + row * bytes, (char *)x + (rows[row] - start) * bytes, bytes);
}

// What an adapter adds to the outputs of a layer, from rows of states, of which a thread computes some: nothing to texts.
static void adapt(
    const Batch *batch, const Group *group, const Memory *memory, const Linear *down, const Linear *up, int thread,
    int threads) {
    size_t H = down->inputs, N = up->outputs;
    Range own = share(group->T, thread, threads);
    int64_t first = group->start + own.first, last = group->start + own.last;

    for (int64_t text = group->first; text < group->last; text++)
        for (int64_t part = batch->first_parts[text]; part < batch->first_parts[text + 1]; part++) {
            int64_t start = batch->parts[part] > first ? batch->parts[part] : first;
            int64_t end = batch->parts[part + 1] < last ? batch->parts[part + 1] : last;
            if (start >= end) continue;

            size_t row = start - group->start, rows = end - start;
            float *thin = memory->thin + row * THIN, *addends = memory->addends + row * N;
            if (part == batch->first_parts[text]) {
                memset(addends, 0, 4 * rows * N);
                continue;
            }
            Target to_thin = {thin, THIN, {.kind = FLOAT32}, NONE, 0};
            product(memory->states + row * H, rows, down, 0, panels_of(FLOAT32, THIN), &to_thin);
            Target to_addends = {addends, N, {.kind = FLOAT32}, NONE, 0};
            product(thin, rows, up, 0, panels_of(FLOAT32, N), &to_addends);
        }
}

// Queries, keys and values of all tokens. In the last layer, keys and values alone.
static void project(
    const Model *model, const Layer *layer, const Group *group, const Memory *memory, const float *addends, int is_last,
    int thread, int threads) {
    size_t attended = model->heads * model->head_size;
    const Linear *qkv = &layer->qkv;
    const void *inputs = inputs_of(memory, qkv);
    Target all = {memory->qkv, 3 * attended, {.kind = attention_kind(model->kind, model->head_size)}, NONE, addends};
    if (!is_last) {
        multiply(inputs, group->T, qkv, &all, thread, threads);
        return;
    }

    // A panel may hold the last queries and the first keys.
    size_t first_keys = attended / panel_of(qkv->format.kind);
    Range part = share(panels_of(qkv->format.kind, qkv->outputs) - first_keys, thread, threads);
    product(inputs, group->T, qkv, first_keys + part.first, first_keys + part.last, &all);
}

// The queries of the tokens that are read, whose inputs are in front.
static void project_queries(
    const Model *model, const Layer *layer, const Group *group, const Memory *memory, int thread, int threads) {
    size_t attended = model->heads * model->head_size;
    Target to = {memory->queries, attended, {.kind = attention_kind(model->kind, model->head_size)}, NONE, 0};

    Linear queries = layer->qkv;
    queries.outputs = attended;
    multiply(inputs_of(memory, &queries), group->R, &queries, &to, thread, threads);
}

// The heads of all texts of a group, of which a thread computes some, in the format of what reads them.
static void attend_group(
    const Model *model, const Batch *batch, const Group *group, const Memory *memory, const Adapter *adapter,
    Format format, int is_last, int thread, int threads) {
    size_t A = model->heads, D = model->head_size;
    size_t bytes = bytes_of(attention_kind(model->kind, D)), out_bytes = bytes_of(format.kind);
    int64_t parts_before = first_part(batch, group->first);
    int64_t parts = first_part(batch, group->last) - parts_before;
    Range own = share(parts * A, thread, threads);
    int64_t text = group->first;

    for (size_t index = own.first; index < own.last; index++) {
        size_t a = index % A;
        int64_t part = parts_before + index / A;
        while (first_part(batch, text + 1) <= part) text++;

        // A statement has the keys of its text, then its own.
        Part whole = part_of(batch, text, first_part(batch, text)), queried = part_of(batch, text, part);
        int is_statement = part != first_part(batch, text);
        size_t start = whole.start - group->start, S = whole.end - whole.start;
        size_t first = queried.start - group->start, last = queried.end - group->start;
        size_t num_own = is_statement ? last - first : 0;
        if (is_last) {
            first = memory->query_starts[text - group->first];
            last = memory->query_starts[text - group->first + 1];
        }

        const char *qkv = (const char *)memory->qkv + a * D * bytes, *keys = qkv + start * 3 * A * D * bytes;
        const char *queries = (const char *)memory->queries + (first * A + a) * D * bytes;
        Head head = {
            .queries = is_last ? queries : qkv + first * 3 * A * D * bytes,
            .keys = keys + A * D * bytes,
            .values = keys + 2 * A * D * bytes,
            .out = (char *)memory->attended + (first * A + a) * D * out_bytes,
            .format = format,
            .column = a * D,
            .query_stride = is_last ? A * D : 3 * A * D,
            .stride = 3 * A * D,
            .out_stride = A * D,
            .R = last - first,
            .S = S + num_own,
            .D = D,
            .own = S,
            .gap = queried.start - whole.end,
            .gate = is_statement && adapter ? adapter->gates[a] : 0,
        };
        if (head.R) attend(model->kind, &head, memory->own + thread * memory->own_floats);
    }
}

// The first row of each text among the rows that are read.
static void find_query_starts(const Batch *batch, const Group *group, int64_t *query_starts) {
    int64_t row = 0;
    for (int64_t text = group->first; text < group->last; text++) {
        query_starts[text - group->first] = row;
        while (row < group->R && batch->rows[group->row + row] < batch->starts[text + 1]) row++;
    }
    query_starts[group->last - group->first] = row;
}

// --- all layers -------------------------------------------------------------------------------------------------------

typedef struct {
    const Model *model;
    const Batch *batch;
    const Memory *memory;
    Barrier *barrier;
    int thread, threads;
} Work;

// One thread's part of a layer. next: the layer that reads its states, or 0. adapter: of statements, or 0.
static void compute_layer(
    const Work *work, const Layer *layer, const Layer *next, const Adapter *adapter, const Group *group, int is_last) {
    const Model *model = work->model;
    const Batch *batch = work->batch;
    const Memory *memory = work->memory;
    Barrier *barrier = work->barrier;
    int thread = work->thread, threads = work->threads;
    size_t H = model->hidden;

    const float *addends = adapter ? memory->addends : 0;
    if (adapter) {
        adapt(batch, group, memory, &adapter->qkv_down, &adapter->qkv_up, thread, threads);
        wait_for_all(barrier);
    }
    project(model, layer, group, memory, addends, is_last, thread, threads);
    wait_for_all(barrier);
    if (is_last) {
        if (thread == 0) {
            const int64_t *rows = batch->rows + group->row;
            take_rows(memory->states, 4 * H, rows, group->R, group->start);
            int kind = layer->qkv.format.kind;
            if (kind != FLOAT32) take_rows(memory->inputs, bytes_of(kind) * H, rows, group->R, group->start);
            find_query_starts(batch, group, memory->query_starts);
        }
        wait_for_all(barrier);
        project_queries(model, layer, group, memory, thread, threads);
        wait_for_all(barrier);
    }
    attend_group(model, batch, group, memory, adapter, layer->attention_output.format, is_last, thread, threads);
    wait_for_all(barrier);

    size_t rows = is_last ? group->R : group->T;
    Range own_rows = share(rows, thread, threads);
    Target to_sums = {memory->sums, H, {.kind = FLOAT32}, NONE, 0};
    multiply(memory->attended, rows, &layer->attention_output, &to_sums, thread, threads);
    wait_for_all(barrier);
    add_and_norm(model, &layer->attention_norm, memory, own_rows, &layer->inner);
    wait_for_all(barrier);

    if (adapter) {
        adapt(batch, group, memory, &adapter->inner_down, &adapter->inner_up, thread, threads);
        wait_for_all(barrier);
    }
    Target to_inner = {memory->inner, model->inner, layer->output.format, model->activation, addends};
    multiply(inputs_of(memory, &layer->inner), rows, &layer->inner, &to_inner, thread, threads);
    wait_for_all(barrier);
    multiply(memory->inner, rows, &layer->output, &to_sums, thread, threads);
    wait_for_all(barrier);
    add_and_norm(model, &layer->output_norm, memory, own_rows, next ? &next->qkv : 0);
    wait_for_all(barrier);
}

// ALBERT looks tokens up in a narrow table: their states from their embeddings, and the inputs of the first layer.
static void widen(const Work *work, const Group *group) {
    const Model *model = work->model;
    const Memory *memory = work->memory;
    size_t H = model->hidden;
    const void *narrow = model->widen.format.kind == FLOAT32 ? memory->sums : memory->inputs;
    Target to = {memory->states, H, {.kind = FLOAT32}, NONE, 0};
    multiply(narrow, group->T, &model->widen, &to, work->thread, work->threads);
    wait_for_all(work->barrier);

    const Linear *reader = &model->layers->qkv;
    Range rows = share(group->T, work->thread, work->threads);
    for (size_t row = rows.first; row < rows.last; row++) {
        void *inputs = input_row(memory, reader, row, H);
        for (size_t h = 0; inputs && h < H; h += W)
            store_as(reader->format, inputs, h, h, load(memory->states + row * H + h));
    }
    wait_for_all(work->barrier);
}

static void compute_group(const Work *work, const Group *group) {
    const Model *model = work->model;
    const Memory *memory = work->memory;
    size_t H = model->hidden;

    embed(model, work->batch, group, memory, share(group->last - group->first, work->thread, work->threads));
    wait_for_all(work->barrier);
    if (model->widen.outputs) widen(work, group);

    for (int64_t index = 0; index < model->depth; index++) {
        const Layer *layer = model->layers + index;
        int is_last = index == model->depth - 1;
        const Adapter *adapter = work->batch->adapters ? work->batch->adapters + index : 0;
        compute_layer(work, layer, is_last ? 0 : layer + 1, adapter, group, work->batch->rows && is_last);
    }

    Range rows = share(group->R, work->thread, work->threads);
    int64_t to = work->batch->rows ? group->row : group->start;
    memcpy(work->batch->out + (to + rows.first) * H, memory->states + rows.first * H, 4 * H * (rows.last - rows.first));
    wait_for_all(work->barrier);
}

// What a thread does.
static void compute(const Work *work) {
#if HAS_TILES
    configure_tiles();
#endif
    int64_t row = 0;
    for (int64_t first = 0; first < work->batch->N;) {
        Group group = next_group(work->batch, first, row);
        if (group.R) compute_group(work, &group);
        row += group.R;
        first = group.last;
    }
#if HAS_TILES
    _tile_release();
#endif
}

// Threads of one call. They begin when the gate opens, since only then it is known how many could be started.
typedef struct {
    const Model *model;
    const Batch *batch;
    const Memory *memory;
    Barrier barrier;
    pthread_mutex_t gate;
    atomic_int places;
} Team;

static void join_in(Team *team, int thread) {
    compute(&(Work){team->model, team->batch, team->memory, &team->barrier, thread, team->barrier.count});
}

static void *help(void *argument) {
    Team *team = argument;
    pthread_mutex_lock(&team->gate);
    pthread_mutex_unlock(&team->gate);
    join_in(team, atomic_fetch_add(&team->places, 1));
    return 0;
}

// Compute a batch by the calling thread, and as many others as can be started.
static void compute_by(int threads, const Model *model, const Batch *batch, const Memory *memory) {
    Team team = {
        .model = model,
        .batch = batch,
        .memory = memory,
        .barrier = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER},
        .gate = PTHREAD_MUTEX_INITIALIZER,
        .places = 1,
    };
    pthread_t others[MAX_THREADS];

    pthread_mutex_lock(&team.gate);
    int count = 1;
    while (count < threads && pthread_create(others + count, 0, help, &team) == 0) count++;
    team.barrier.count = count;
    pthread_mutex_unlock(&team.gate);

    join_in(&team, 0);
    for (int thread = 1; thread < count; thread++) pthread_join(others[thread], 0);
}

// --- what Python calls ------------------------------------------------------------------------------------------------

// Whether each text begins with its first part and ends with its last one; if not, the text's index goes to `place`.
static int are_parts_of_texts(const Batch *batch, int64_t *place) {
    if (batch->rows) return 0;  // all tokens of a batch with statements are read
    for (int64_t text = 0; text < batch->N; text++) {
        *place = text;
        int64_t first = batch->first_parts[text], last = batch->first_parts[text + 1];
        if (last <= first || (text == 0 && first != 0)) return 0;
        if (batch->parts[first] != batch->starts[text] || batch->parts[last] != batch->starts[text + 1]) return 0;
        for (int64_t part = first; part < last; part++)
            if (batch->parts[part + 1] < batch->parts[part]) return 0;
    }
    return 1;
}

// The tokens of a text's longest part.
static int64_t longest_part(const Batch *batch, int64_t text) {
    int64_t longest = 0;
    for (int64_t part = first_part(batch, text); part < first_part(batch, text + 1); part++) {
        Part tokens = part_of(batch, text, part);
        if (tokens.end - tokens.start > longest) longest = tokens.end - tokens.start;
    }
    return longest;
}

// FINE, or the first fault of a batch, whose index goes to `place`.
static int check(const Model *model, const Batch *batch, int64_t T, int64_t S, int64_t *place) {
    *place = 0;
    if (batch->N < 0 || batch->starts[0] != 0 || batch->starts[batch->N] != T) return BAD_STARTS;
    for (int64_t text = 0; text < batch->N; text++) {
        *place = text;
        if (batch->starts[text + 1] < batch->starts[text]) return BAD_STARTS;
    }
    if (batch->adapters && !batch->parts) return BAD_PARTS;
    if (batch->parts && !are_parts_of_texts(batch, place)) return BAD_PARTS;
    for (int64_t text = 0; text < batch->N; text++) {
        *place = text;
        if (batch->starts[text + 1] - batch->starts[text] > S) return TOO_LONG;
        if (longest_part(batch, text) > model->positions - model->position_offset) return TOO_LONG;
    }
    for (int64_t token = 0; token < T; token++) {
        *place = token;
        if (batch->ids[token] < 0 || batch->ids[token] >= batch->num_words) return BAD_ID;
        int32_t segment = batch->segments ? batch->segments[token] : 0;
        if (model->segments && (segment < 0 || segment >= model->segments)) return BAD_SEGMENT;
    }
    for (int64_t row = 0; batch->rows && row < batch->R; row++) {
        *place = row;
        int64_t least = row ? batch->rows[row - 1] + 1 : 0;
        if (batch->rows[row] < least || batch->rows[row] >= T) return BAD_ROWS;
    }
    return FINE;
}

// Tokens that are in memory at once, of T of texts of at most S.
static size_t tokens_at_once(int64_t T, int64_t S) {
    int64_t tokens = T < GROUP ? T : GROUP;
    return tokens < S ? S : tokens;
}

// Bytes of memory for a batch of T tokens whose longest text, with its statements, has S.
EXPORT(int64_t, memory_size)(const Model *model, int64_t T, int64_t S, int has_adapters, int threads) {
    Memory parts;
    return divide(model, tokens_at_once(T, S), S, has_adapters, threads, 0, &parts) + 64;
}

// The last hidden states of a batch of T tokens, whose longest text with its statements has S, by 1 to MAX_THREADS threads.
// memory: memory_size bytes. FINE, or a fault, whose index goes to `place`.
EXPORT(int, encode_batch)(
    const Model *model, const Batch *batch, int64_t T, int64_t S, int threads, void *memory, int64_t *place) {
    int fault = check(model, batch, T, S, place);
    if (fault) return fault;

    Memory parts;
    int has_adapters = batch->adapters != 0;
    divide(model, tokens_at_once(T, S), S, has_adapters, threads, round_up((uintptr_t)memory, 64), &parts);
    compute_by(threads, model, batch, &parts);
    return FINE;
}

// --- single steps, for tests ------------------------------------------------------------------------------------------

// Attention of N texts over qkv [T, 3, A, D] of the kind of attention, to out [T, A, D] of a model's kind. memory:
// attention_bytes.
EXPORT(int64_t, attention_bytes)(int64_t S, int64_t D) { return 4 * attention_floats(S, D); }

EXPORT(int, kind_of_attention)(int kind, int64_t D) { return attention_kind(kind, D); }

EXPORT(void, attend_ragged)(
    int kind, const void *qkv, const int64_t *starts, int64_t N, int64_t A, int64_t D, void *out, void *memory) {
#if HAS_TILES
    configure_tiles();
#endif
    Model model = {.kind = kind, .heads = A, .head_size = D};
    Batch batch = {.starts = starts, .N = N};
    Group group = {.last = N, .T = starts[N], .R = starts[N]};
    Memory parts = {.qkv = (void *)qkv, .attended = out, .own = memory};
    attend_group(&model, &batch, &group, &parts, 0, (Format){.kind = kind}, 0, 0, 1);
#if HAS_TILES
    _tile_release();
#endif
}

// x = norm(x + y) for T rows of H numbers, in float32.
EXPORT(void, add_norm)(float *x, const float *y, int64_t T, int64_t H, const float *scale, const float *shift, double epsilon) {
    Model model = {.hidden = H, .epsilon = epsilon};
    Norm norm = {scale, shift};
    Memory parts = {.states = x, .sums = (float *)y};
    add_and_norm(&model, &norm, &parts, (Range){0, T}, 0);
}

// An activation of n numbers, a multiple of 16, as of those that are stored in a number format; in place, in float32.
EXPORT(void, activate)(int activation, int kind, float *x, int64_t n) {
    for (int64_t i = 0; i < n; i += W) store(x + i, activated(activation, kind, load(x + i)));
}

// Rows x [T, K] as inputs of a layer, in its format.
EXPORT(void, store_inputs)(const Linear *reader, const float *x, int64_t T, void *out) {
    for (int64_t row = 0; row < T; row++)
        for (int64_t k = 0; k < reader->inputs; k += W) {
            size_t place = row * reader->inputs + k;
            store_as(reader->format, out, place, k, load(x + place));
        }
}

// act(x W + b) of T rows in a layer's format, after which there are SPARE_ROWS to read; to out [T, N], in float32, or in
// the format of the layer that reads them.
EXPORT(void, multiply_rows)(
    const Linear *l, const void *x, int64_t T, int activation, const Linear *reader, void *out) {
#if HAS_TILES
    configure_tiles();
#endif
    Target to = {out, l->outputs, reader ? reader->format : (Format){.kind = FLOAT32}, activation, 0};
    multiply(x, T, l, &to, 0, 1);
#if HAS_TILES
    _tile_release();
#endif
}
