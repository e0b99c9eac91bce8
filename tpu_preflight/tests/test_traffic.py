"""What a compiled program reads and writes in the device's memory: counted by hand."""

from tpu_preflight.compiler.execution import uncounted_work

# A loop of 1,000 rounds that copies a row of a table each time.
PROGRAM = """HloModule step

%picked (table: f32[1024,128], i: s32[]) -> f32[1,128] {{
  %table = f32[1024,128]{{1,0}} parameter(0)
  %i = s32[] parameter(1)
  %zero.1 = s32[] constant(0)
  %same = f32[1024,128]{{1,0}} bitcast(%table)
  ROOT %slice = f32[1,128]{{1,0}} dynamic-slice(%same, %i, %zero.1), dynamic_slice_sizes={{1,128}}
}}

%put (rows: f32[1024,128], row: f32[1,128], i.1: s32[]) -> f32[1024,128] {{
  %rows = f32[1024,128]{{1,0}} parameter(0)
  %row = f32[1,128]{{1,0}} parameter(1)
  %i.1 = s32[] parameter(2)
  %zero.2 = s32[] constant(0)
  ROOT %update = f32[1024,128]{{1,0}} dynamic-update-slice(%rows, %row, %i.1, %zero.2)
}}

%body (state: (s32[], f32[1024,128], f32[1024,128])) -> (s32[], f32[1024,128], f32[1024,128]) {{
  %state = (s32[], f32[1024,128]{{1,0}}, f32[1024,128]{{1,0}}) parameter(0)
  %counter = s32[] get-tuple-element(%state), index=0
  %from = f32[1024,128]{{1,0}} get-tuple-element(%state), index=1
  %to = f32[1024,128]{{1,0}} get-tuple-element(%state), index=2
  %one = s32[] constant(1)
  %next = s32[] add(%counter, %one)
  %a_row = f32[1,128]{{1,0{space}}} fusion(%from, %counter), kind=kLoop, calls=%picked
  %with = f32[1024,128]{{1,0}} fusion(%to, %a_row, %counter), kind=kLoop, calls=%put
  ROOT %result = (s32[], f32[1024,128]{{1,0}}, f32[1024,128]{{1,0}}) tuple(%next, %from, %with)
}}

%condition (state.1: (s32[], f32[1024,128], f32[1024,128])) -> pred[] {{
  %state.1 = (s32[], f32[1024,128]{{1,0}}, f32[1024,128]{{1,0}}) parameter(0)
  %counter.1 = s32[] get-tuple-element(%state.1), index=0
  %limit = s32[] constant(1000)
  ROOT %less = pred[] compare(%counter.1, %limit), direction=LT
}}

ENTRY %main (x: f32[1024,128]) -> f32[1024,128] {{
  %x = f32[1024,128]{{1,0}} parameter(0)
  %zero = s32[] constant(0)
  %copy = f32[1024,128]{{1,0}} copy(%x)
  %start = (s32[], f32[1024,128]{{1,0}}, f32[1024,128]{{1,0}}) tuple(%zero, %x, %copy)
  %loop = (s32[], f32[1024,128]{{1,0}}, f32[1024,128]{{1,0}}) while(%start), condition=%condition, body=%body
  ROOT %last = f32[1024,128]{{1,0}} get-tuple-element(%loop), index=2
}}
"""  # noqa: E501

TABLE_BYTES = 4 * 1024 * 128
ROW_BYTES = 4 * 128
NUMBER_BYTES = 4  # the counter


def test_of_a_table_only_the_rows_count_that_are_read_or_written_in_each_round():
    reads_a_row = 2 * ROW_BYTES + NUMBER_BYTES
    writes_a_row = 2 * ROW_BYTES + NUMBER_BYTES
    counts_on = 3 * NUMBER_BYTES
    rounds = 1000 * (reads_a_row + writes_a_row + counts_on)
    work = uncounted_work(PROGRAM.format(space=""), cores=1)
    assert work.traffic_bytes == 2 * TABLE_BYTES + rounds


def test_what_stays_on_the_chip_is_no_traffic():
    work = uncounted_work(PROGRAM.format(space=":S(1)"), cores=1)
    rows_on_the_chip = 1000 * 2 * ROW_BYTES
    everything = uncounted_work(PROGRAM.format(space=""), cores=1)
    assert everything.traffic_bytes - work.traffic_bytes == rows_on_the_chip
